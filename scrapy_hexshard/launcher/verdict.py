"""Whether a worker did its job, judged by all its lives. Pure."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from scrapy_hexshard.launcher.reports import FINISHED, Fault, Totals


@dataclass(frozen=True, slots=True)
class Life:
    """One life of a worker, from its start until its process group was empty."""

    returncode: int | None  # as of subprocess: -n for signal n; None if it never ran or never ended
    reported: bool = False  # it opened a spider, and said so
    finished: bool = False  # it said that its shard is finished
    reason: str | None = None
    totals: Totals = field(default_factory=Totals)
    unreadable: int = 0  # reports that made no sense
    wrong_shard: int | None = None  # what it crawled in the place of its own shard
    told_to_stop: bool = False
    stalled: bool = False  # it was stopped, as it got nowhere
    forced: bool = False  # it, or what it left behind, had to be killed
    given_up: bool = False  # even that did not end it
    started_at: float = 0.0  # by the clock of time.monotonic()
    seconds: float = 0.0
    detail: str | None = None  # what the worker said beside its reason
    fault: Fault | None = None  # of most of its attempts

    @property
    def succeeded(self) -> bool:
        """Whether nothing is left to do for this worker, as far as it tells."""
        ended_early = self.reported or self.told_to_stop or self.stalled
        return self.returncode == 0 and (self.finished or not ended_early)


class State(Enum):
    """How a worker ended."""

    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A worker's state, and for a failed one the reason, as the end of a sentence."""

    state: State
    why: str = ""


def judge(lives: Sequence[Life]) -> Verdict:
    """The verdict on a worker: that of its last life, and whether its lives came to anything."""
    if not lives:
        return Verdict(State.STOPPED)
    last = lives[-1]
    if last.told_to_stop and not last.succeeded:
        return Verdict(State.STOPPED)
    why = _failure(last) or _fruitless(lives)
    return Verdict(State.FAILED, why) if why else Verdict(State.FINISHED)


def _failure(last: Life) -> str | None:
    """Why a worker whose *last* life was this has failed, if it has."""
    if last.stalled and not last.succeeded:
        return "it made no progress and was stopped"
    if last.returncode != 0:
        return f"its process {_end(last)}"
    if not last.succeeded:
        return _unfinished(last)
    if last.wrong_shard is not None:
        return (
            f"it crawled shard {last.wrong_shard} in the place of its own; write "
            "-a shard={shard} -a shards={shards}, or no shard at all"
        )
    return None


def _fruitless(lives: Sequence[Life]) -> str | None:
    totals = sum((life.totals for life in lives), Totals())
    if totals.done > 0 or totals.faults == 0:
        return None
    return f"it completed no key, and {totals.faults} ended in an error{_most_often(lives)}"


def _most_often(lives: Sequence[Life]) -> str:
    times: Counter[str] = Counter()
    for life in lives:
        if life.fault:
            times[life.fault.outcome] += life.fault.times
    return "".join(
        f"; most often: {outcome} ({count:,} time{'' if count == 1 else 's'})"
        for outcome, count in times.most_common(1)
    )


def exit_name(returncode: int | None) -> str:
    """How a process ended, in a word or two: ``exit 1`` or ``SIGKILL``."""
    if returncode is None:
        return "no exit"
    if returncode >= 0:
        return f"exit {returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


def _end(life: Life) -> str:
    if life.returncode is None:
        return "could not be killed" if life.given_up else "could not be started"
    return f"ended with {exit_name(life.returncode)}"


def _unfinished(life: Life) -> str:
    if life.reason in {None, FINISHED}:
        return "it ended without saying why, so its shard may not be finished"
    detail = f" ({life.detail.rstrip('.')})" if life.detail else ""
    return f"its shard is not finished: it closed with {life.reason}{detail}"
