"""The table at the end of a run, and the sentences below it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from scrapy_hexshard.launcher.plan import shard_names
from scrapy_hexshard.launcher.reports import Extent, Totals
from scrapy_hexshard.launcher.verdict import Life, State, Verdict, exit_name

_HEADER = (
    "shard",
    "lives",
    "exit",
    "reason",
    "done",
    "failed",
    "dead",
    "items",
    "pages/min",
    "time",
)


class Ended(Protocol):
    """What the table shows of a worker."""

    shard: int
    lives: list[Life]

    @property
    def totals(self) -> Totals:
        """The totals of all its lives."""

    @property
    def verdict(self) -> Verdict:
        """The verdict on them."""

    @property
    def extent(self) -> Extent | None:
        """The keys of its shard, as far as it has told them."""


def summarize(workers: Sequence[Ended]) -> str:
    """The table of all *workers*, and what deserves a sentence; ends with a line end."""
    rows = [_row(worker) for worker in workers]
    total = sum((worker.totals for worker in workers), Totals())
    lives = [life for worker in workers for life in worker.lives]
    rows.append(("total", str(len(lives)), "", "", *_numbers(total, run_seconds(workers))))
    table = [_HEADER, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in table
    ]
    return "\n".join([*lines, *sentences(workers)]) + "\n"


def sentences(workers: Sequence[Ended]) -> Iterable[str]:
    """What to know beyond the table: failures, kills, silence, dead keys, keys that are left."""
    for worker in workers:
        if worker.verdict.state is State.FAILED:
            yield f"shard {worker.shard} failed: {worker.verdict.why}."
    if forced := [w.shard for w in workers if any(life.forced for life in w.lives)]:
        yield (
            f"Killed, as they did not stop in time: processes of {shard_names(forced)}. What they "
            "had open is crawled when the shard is next started."
        )
    if silent := [w.shard for w in workers if _is_silent(w)]:
        yield (
            f"Judged by exit code alone, as no report came: {shard_names(silent)}. A Scrapy worker "
            "reports if the HexShardAddon is enabled."
        )
    if garbled := [w.shard for w in workers if any(life.unreadable for life in w.lives)]:
        yield f"Sent reports that cannot be read: {shard_names(garbled)}."
    if dead := sum(worker.totals.dead for worker in workers):
        yield f"Keys given up in this run: {dead}. See why with: hexdigest-shard status STORE"
    if any(map(_can_go_on, workers)):
        yield "Keys are left: the same command goes on where this run was stopped."


def run_seconds(workers: Sequence[Ended]) -> float:
    """How long the run took from the first start of a worker to the last end of one."""
    lives = [life for worker in workers for life in worker.lives]
    if not lives:
        return 0.0
    return max(life.started_at + life.seconds for life in lives) - min(
        life.started_at for life in lives
    )


def pages_per_minute(totals: Totals, seconds: float) -> float | None:
    """Pages a minute over *seconds*, start-up included; None for less than a second."""
    return 60 * totals.pages / seconds if seconds >= 1 else None


def _row(worker: Ended) -> tuple[str, ...]:
    last = worker.lives[-1] if worker.lives else None
    return (
        str(worker.shard),
        str(len(worker.lives)),
        exit_name(last.returncode) if last else "not run",
        (last and last.reason) or "-",
        *_numbers(worker.totals, sum(life.seconds for life in worker.lives)),
    )


def _numbers(totals: Totals, seconds: float) -> tuple[str, ...]:
    counts = map(str, (totals.done, totals.failed, totals.dead, totals.items))
    pace = pages_per_minute(totals, seconds)
    return (*counts, "-" if pace is None else f"{pace:.0f}", _time(seconds))


def _is_silent(worker: Ended) -> bool:
    """Whether its exit code is all that speaks for it."""
    if not worker.lives or worker.lives[-1].returncode != 0:
        return False
    return not (worker.lives[-1].reported or worker.lives[-1].told_to_stop)


def _can_go_on(worker: Ended) -> bool:
    """Whether it was stopped with keys left; only one that has a store tells of any."""
    if worker.verdict.state is not State.STOPPED:
        return False
    return worker.totals.released > 0 or (worker.extent is not None and worker.extent.open > 0)


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
