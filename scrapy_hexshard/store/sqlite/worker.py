"""This worker's row: who it is, and what became of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from scrapy_hexshard.store.named_queries import named_queries
from scrapy_hexshard.store.process import ProcessIdentity

_SQL = named_queries("sqlite")


class Worker:
    """One worker of a shard; its *id* is new each time a store is opened, None until noted."""

    def __init__(self, identity: ProcessIdentity) -> None:
        self.identity = identity
        self.id: int | None = None
        self.has_claimed = False
        self.condemned: tuple[str, ...] = ()

    def registered(self, connection: sqlite3.Connection, shard: int, now: int) -> int:
        """Its id, after noting that it works *shard*."""
        if self.id is None:
            row = {
                "shard": shard,
                "boot": self.identity.boot,
                "machine": self.identity.machine,
                "namespace": self.identity.namespace,
                "pid": self.identity.pid,
                "born": self.identity.born,
                "now": now,
            }
            self.id = connection.execute(_SQL["add_worker"], row).fetchall()[0][0]
        return self.id

    def note(
        self, connection: sqlite3.Connection, shard: int, now: int, query: str, **values: Any
    ) -> None:
        """Change its row by the named query."""
        worker = self.registered(connection, shard, now)
        connection.execute(_SQL[query], {"worker": worker, "now": now, **values})

    @contextmanager
    def unless_undone(self) -> Iterator[None]:
        """Forget what was noted inside if an error undoes it."""
        before = self.id, self.has_claimed, self.condemned
        try:
            yield
        except BaseException:
            self.id, self.has_claimed, self.condemned = before
            raise
