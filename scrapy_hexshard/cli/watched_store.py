"""What ``status --watch`` shows of a store from one look to the next. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
from scrapy_hexshard.store.contract import ShardCounts, State

_COLUMNS = (
    Column("shard", 0),
    Column("pending", 3),
    Column("running", 4),
    Column("done", 1),
    Column("failed", 5),
    Column("dead", 2),
    Column("keys/min", 6),
)


@dataclass(frozen=True, slots=True)
class StoreSight:
    """What was seen of a store at one time: the keys of each shard, and how many end a minute."""

    progress: Progress
    shards: Sequence[tuple[ShardCounts, float | None]]

    def picture(self, height: int) -> Picture:
        """The picture for a terminal of *height* lines."""
        groups = fold(self.shards, rows_for(height))
        rows = [
            [Cell(numbers(row.shard for row, _ in group)), *_numbers(group)] for group in groups
        ]
        return Picture(self.progress, _COLUMNS, rows, [Cell("total"), *_numbers(self.shards)])


class StoreObserver:
    """Takes in the counts of a store from time to time."""

    def __init__(self) -> None:
        self._course = Course()
        self._paces: dict[int, Pace] = {}
        self._last: list[ShardCounts] = []
        self._changes = 0

    def look(self, now: float, shards: list[ShardCounts]) -> StoreSight:
        """What *shards*, read at *now*, come to."""
        # A key that fails again and again changes no sum, but from look to look it moves.
        self._changes += shards != self._last
        self._last = shards
        ended = {row.shard: _sum(row.counts, State.DONE, State.DEAD) for row in shards}
        for shard, number in ended.items():
            self._paces.setdefault(shard, Pace()).add(now, number)
        keys = sum(sum(row.counts.values()) for row in shards)
        progress = self._course.look(
            now,
            ended=sum(ended.values()),
            moves=self._changes,
            running=sum(_sum(row.counts, State.RUNNING) for row in shards),
            keys=keys,
            open_=keys - sum(ended.values()),
        )
        return StoreSight(progress, [(row, self._paces[row.shard].per_minute) for row in shards])


def _sum(counts: Mapping[State, int], *states: State) -> int:
    return sum(counts.get(state, 0) for state in states)


def _numbers(group: Sequence[tuple[ShardCounts, float | None]]) -> list[Cell]:
    rates = [rate for _, rate in group if rate is not None]
    return [
        *(count(sum(_sum(row.counts, state) for row, _ in group)) for state in State),
        Cell(words.rate(sum(rates) if rates else None), Tone.PLAIN if any(rates) else Tone.QUIET),
    ]
