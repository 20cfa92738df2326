"""Reads a store without writing a byte, taking a lock that others wait for, or creating a file."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from scrapy_hexshard.errors import StoreError
from scrapy_hexshard.store.sqlite.failures import (
    check_same_file,
    file_identity,
    opened_before_fork,
    told_plainly,
)

_TIMEOUT = 60.0


class Reader:
    """A read-only connection.

    A database whose writers have all closed it has no write-ahead log beside it, and SQLite would
    create one even to read. It is then read as an immutable file, and read again if that was wrong.
    """

    waited = 0.0

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.RLock()
        self._pid = os.getpid()
        self._log = path.with_name(path.name + "-wal")
        self._connection: sqlite3.Connection | None = None
        with told_plainly(path):
            self._connection = self._connect()
        self._identity = file_identity(path)

    def rows(self, sql: str, parameters: Mapping[str, Any] | Sequence[Any] = ()) -> list[Any]:
        """All rows of a query, from one consistent state of the store."""
        with self.lock, told_plainly(self.path):
            while True:
                connection = self._usable()
                before = self._seen
                try:
                    found = connection.execute(sql, parameters).fetchall()
                except sqlite3.DatabaseError:
                    if before is None or self._look() == before:
                        raise
                else:
                    if before is None or self._look() == before:
                        return found
                connection.close()
                self._connection = self._connect()

    def write(
        self,
        *,
        durable: bool = True,  # noqa: ARG002 (the same call as a Database's)
    ) -> AbstractContextManager[sqlite3.Connection]:
        raise StoreError(f"{self.path} was opened read-only.")

    def group(self) -> AbstractContextManager[None]:
        raise StoreError(f"{self.path} was opened read-only.")

    def close(self) -> None:
        with self.lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _usable(self) -> sqlite3.Connection:
        if self._pid != os.getpid():
            raise opened_before_fork(self.path, self._pid)
        if self._connection is None:
            raise StoreError(f"The store {self.path} is closed.")
        if self._identity is not None:
            check_same_file(self.path, self._identity)
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        self._seen = self._look()
        query = "mode=ro&immutable=1" if self._seen else "mode=ro"
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?{query}",
            uri=True,
            timeout=_TIMEOUT,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.execute("PRAGMA mmap_size = 0")
        connection.execute("PRAGMA temp_store = MEMORY")
        return connection

    def _look(self) -> tuple[int, ...] | None:
        """What shows whether an immutable file was changed after all; None if others write it."""
        if self._log.exists():
            return None
        status = self.path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns
