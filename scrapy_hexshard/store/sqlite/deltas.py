"""What one transaction changes in the counts, written once at its end."""

from __future__ import annotations

import sqlite3

from scrapy_hexshard.store.contract import State
from scrapy_hexshard.store.named_queries import named_queries

_SQL = named_queries("sqlite")
_COLUMNS = {state: column for column, state in enumerate(State)}


class Deltas:
    """Keys that entered and left each state, by shard."""

    def __init__(self) -> None:
        self._shards: dict[int, list[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._shards)

    def move(self, shard: int, source: State | None, target: State, n: int = 1) -> None:
        """*n* keys of *shard* go from *source*, or from nowhere, to *target*."""
        changes = self._shards.setdefault(shard, [0] * len(_COLUMNS))
        changes[_COLUMNS[target]] += n
        if source is not None:
            changes[_COLUMNS[source]] -= n

    def store(self, connection: sqlite3.Connection) -> None:
        rows = [(*changes, shard) for shard, changes in self._shards.items() if any(changes)]
        connection.executemany(_SQL["count"], rows)
