"""What is said of workers while they run, stop and end. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from scrapy_hexshard.launcher.ladder import Stage
from scrapy_hexshard.launcher.plan import shard_names
from scrapy_hexshard.launcher.verdict import Life, State, Verdict, exit_name

_SAID = {
    Stage.PRESSED: "asking again: {}.",
    Stage.KILLED: "processes of {} did not stop in time and were killed.",
    Stage.GIVEN_UP: "processes of {} cannot be killed, and are left behind.",
}


def stage_sentence(stage: Stage, shards: Sequence[int]) -> str | None:
    """That the workers of *shards* have reached *stage*, if it is worth a word."""
    return _SAID[stage].format(shard_names(shards)) if stage in _SAID else None


def worker_count(count: int) -> str:
    """*count* as people say it."""
    return f"{count or 'no'} worker{'' if count == 1 else 's'}"


def obituary(verdict: Verdict, life: Life, delay: float | None, hopeless: str | None) -> str:
    """How *life* ended, and what comes next: another one after *delay* seconds, if that is set.

    If it is not, *hopeless* may say why not.
    """
    if delay is not None:
        return f"{verdict.why}; starts again in {delay:.1f} s."
    if verdict.state is not State.FAILED:
        return f"{verdict.state.value}, {exit_name(life.returncode)}."
    gave_up = f" It is not started again: {hopeless}." if hopeless else ""
    return f"failed: {verdict.why}.{gave_up}"
