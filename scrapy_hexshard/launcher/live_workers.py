"""What the live view and the line a minute show of the workers. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from scrapy_hexshard.launcher import live_words as words
from scrapy_hexshard.launcher.live_pace import Course, Pace, Progress
from scrapy_hexshard.launcher.live_table import (
    Cell,
    Column,
    Picture,
    Tone,
    count,
    fold,
    numbers,
    rows_for,
)
from scrapy_hexshard.launcher.reports import Extent, Totals
from scrapy_hexshard.launcher.verdict import Life, State, Verdict, exit_name

_COLUMNS = (
    Column("shard", 0),
    Column("state", 0, is_text=True),
    Column("running", 5),
    Column("done", 1),
    Column("failed", 4),
    Column("dead", 2),
    Column("pages/min", 3),
    Column("restarts", 7),
    Column("last error", 6, is_text=True),
)
# In the order in which a group names them.
_TONES = {
    "failed": Tone.BAD,
    "stalled": Tone.CARE,
    "restarting": Tone.CARE,
    "stopping": Tone.CARE,
    "stopped": Tone.PLAIN,
    "waiting": Tone.QUIET,
    "started": Tone.QUIET,
    "running": Tone.PLAIN,
    "finished": Tone.GOOD,
}
_ORDER = list(_TONES)


class Watched(Protocol):
    """What is looked at of a worker."""

    shard: int
    lives: list[Life]
    start_at: float | None

    @property
    def alive(self) -> bool:
        """Whether its process is there."""

    @property
    def opened(self) -> bool:
        """Whether that has reported a spider."""

    @property
    def stopping(self) -> bool:
        """Whether that was told to stop, or is ending."""

    @property
    def running(self) -> int:
        """The keys it works on."""

    @property
    def extent(self) -> Extent | None:
        """The keys of its shard, as far as it has told them."""

    @property
    def totals(self) -> Totals:
        """The totals of all its lives."""

    @property
    def verdict(self) -> Verdict:
        """The verdict on the lives that have ended."""


@dataclass(frozen=True, slots=True)
class ShardSight:
    """What was seen of one shard."""

    shard: int
    state: str
    running: int
    totals: Totals
    per_minute: float | None  # pages
    restarts: int
    error: str  # why its last life ended, if not well


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen of a run at one time."""

    progress: Progress
    shards: Sequence[ShardSight]

    def picture(self, height: int) -> Picture:
        """The picture for a terminal of *height* lines."""
        groups = fold(self.shards, rows_for(height))
        total = [Cell("total"), Cell(""), *_numbers(self.shards), Cell("")]
        return Picture(self.progress, _COLUMNS, [_row(group) for group in groups], total)

    def sentence(self) -> str:
        """The same for where nothing can be drawn."""
        at_work = sum(shard.state in {"running", "stalled"} for shard in self.shards)
        dead = sum(shard.totals.dead for shard in self.shards)
        failed = [shard for shard in self.shards if shard.state == "failed"]
        return words.sentence(
            self.progress,
            f"{dead:,} of them dead in this run" if dead else "",
            f"{at_work} of {len(self.shards)} workers running",
            f"{len(failed)} failed" if failed else "",
        )


class Observer:
    """Looks at *workers* from time to time, and tells what it saw."""

    def __init__(self, workers: Sequence[Watched]) -> None:
        self._workers = workers
        self._course = Course()
        self._paces = [(Pace(), Pace()) for _ in workers]  # of pages, and of all that moves

    def look(self, now: float) -> Sight:
        """What is to be seen at *now*."""
        shards = [
            _see(worker, now, *paces)
            for worker, paces in zip(self._workers, self._paces, strict=True)
        ]
        extents = [worker.extent for worker in self._workers]
        known = [extent for extent in extents if extent is not None]
        complete = len(known) == len(extents)
        progress = self._course.look(
            now,
            ended=sum(shard.totals.done + shard.totals.dead for shard in shards),
            moves=sum(map(_moves, shards)),
            running=sum(shard.running for shard in shards),
            keys=sum(extent.keys for extent in known) if complete else None,
            open_=sum(extent.open for extent in known) if complete else None,
        )
        return Sight(progress, shards)


def _see(worker: Watched, now: float, pages: Pace, moves: Pace) -> ShardSight:
    totals = worker.totals
    pages.add(now, totals.pages)
    moves.add(now, totals.settled + totals.pages)
    state = _state_of(worker)
    return ShardSight(
        shard=worker.shard,
        state="stalled" if state == "running" and worker.running and moves.is_still(now) else state,
        running=worker.running,
        totals=totals,
        per_minute=pages.per_minute if worker.alive else None,
        restarts=max(0, len(worker.lives) + worker.alive - 1),
        error=words.printable(_last_error(worker)),
    )


def _moves(shard: ShardSight) -> int:
    return shard.totals.settled + shard.totals.pages


def _state_of(worker: Watched) -> str:
    if worker.alive:
        if worker.stopping:
            return "stopping"
        return "running" if worker.opened else "started"
    if worker.start_at is not None:
        return "restarting" if worker.lives else "waiting"
    return worker.verdict.state.value


def _last_error(worker: Watched) -> str:
    if not worker.lives:
        return ""
    last = worker.lives[-1]
    if last.succeeded:
        done_for = not worker.alive and worker.verdict.state is State.FAILED
        return worker.verdict.why if done_for else ""
    if last.returncode != 0:
        return "" if last.told_to_stop and not last.forced else exit_name(last.returncode)
    return "" if last.told_to_stop else last.reason or "no reason given"


def _row(group: Sequence[ShardSight]) -> list[Cell]:
    return [
        Cell(numbers(shard.shard for shard in group)),
        _state(group),
        *_numbers(group),
        Cell(_error(group), Tone.BAD if _state(group).tone is Tone.BAD else Tone.PLAIN),
    ]


def _state(group: Sequence[ShardSight]) -> Cell:
    states = Counter(shard.state for shard in group)
    named = sorted(states, key=_ORDER.index)
    if len(group) == 1:
        return Cell(named[0], _TONES[named[0]])
    return Cell(", ".join(f"{states[state]} {state}" for state in named), _TONES[named[0]])


def _numbers(group: Sequence[ShardSight]) -> list[Cell]:
    rates = [shard.per_minute for shard in group if shard.per_minute is not None]
    return [
        count(sum(shard.running for shard in group)),
        count(sum(shard.totals.done for shard in group)),
        count(sum(shard.totals.failed for shard in group)),
        count(sum(shard.totals.dead for shard in group)),
        Cell(words.rate(sum(rates) if rates else None), Tone.PLAIN if any(rates) else Tone.QUIET),
        count(sum(shard.restarts for shard in group), Tone.CARE),
    ]


def _error(group: Sequence[ShardSight]) -> str:
    if len(group) == 1:
        return group[0].error
    return ", ".join(f"{shard.shard}: {shard.error}" for shard in group if shard.error)
