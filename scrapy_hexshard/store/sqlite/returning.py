"""Puts back what nobody holds any more: to the ready keys, the suspects or the dead."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scrapy_hexshard.config import RetryPolicy
from scrapy_hexshard.store.contract import WORKER_DIED, State
from scrapy_hexshard.store.named_queries import named_queries
from scrapy_hexshard.store.sqlite.deltas import Deltas
from scrapy_hexshard.store.sqlite.ends import Ends

_SQL = named_queries("sqlite")


class Returned(NamedTuple):
    """A key without its worker; the deaths include that of this worker."""

    id: int
    shard: int
    rank: int
    attempts: int
    deaths: int
    lone_deaths: int
    error: str | None
    worker: int
    died_alone: bool


@dataclass(frozen=True, slots=True)
class Returning:
    """Puts keys of one shard back within a transaction, at the time *now* in milliseconds."""

    connection: sqlite3.Connection
    shard: int
    now: int
    policy: RetryPolicy

    def put(self, rows: Sequence[Returned], source: State, deltas: Deltas) -> list[str]:
        """Put back *rows*, which were in the state *source*; the keys that this condemned."""
        self.connection.executemany(_SQL["leave_busy"], [(row.id,) for row in rows])
        condemned = [row for row in rows if self._is_condemned(row)]
        pending = [row for row in rows if not self._is_condemned(row)]
        suspects = [(*row[:7], self.now) for row in pending if self._is_suspect(row)]
        ready = [row[:7] for row in pending if not self._is_suspect(row)]
        self.connection.executemany(_SQL["return_ready"], ready)
        self.connection.executemany(_SQL["return_suspect"], suspects)
        deltas.move(self.shard, source, State.PENDING, len(pending))
        return self._condemn(condemned, deltas) if condemned else []

    def _is_condemned(self, row: Returned) -> bool:
        return bool(row.died_alone) and self.policy.is_condemned(row.lone_deaths)

    def _is_suspect(self, row: Returned) -> bool:
        return self.policy.is_suspect(row.deaths)

    def _condemn(self, rows: Sequence[Returned], deltas: Deltas) -> list[str]:
        ends = Ends(self.connection)
        outcome = ends.count(WORKER_DIED, len(rows))
        ends.store()
        dead = [
            (row.id, row.shard, row.attempts, row.deaths, row.lone_deaths, row.worker, self.now)
            for row in rows
        ]
        self.connection.executemany(_SQL["condemn"], [(*row, *outcome) for row in dead])
        deltas.move(self.shard, State.RUNNING, State.DEAD, len(rows))
        return [self.connection.execute(_SQL["key"], (row.id,)).fetchone()[0] for row in rows]
