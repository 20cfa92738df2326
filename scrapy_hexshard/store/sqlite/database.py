"""One connection that writes: its transactions under the gate, and its end."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from scrapy_hexshard.errors import StoreError, StoreUnavailableError
from scrapy_hexshard.store.sqlite.connection import connect
from scrapy_hexshard.store.sqlite.failures import (
    check_same_file,
    file_identity,
    opened_before_fork,
    told_plainly,
)
from scrapy_hexshard.store.sqlite.gate import Gate
from scrapy_hexshard.store.sqlite.location import Location

LAST_CALL_SECONDS = 5.0
# SQLite sleeps at least as long when it has to wait; otherwise to begin takes some microseconds,
# which over a whole crawl would look like waiting.
BUSY_SECONDS = 0.001
# What a fork left in a child: closing it there could harm the parent's connection.
_inherited: list[sqlite3.Connection] = []
_open_databases: weakref.WeakSet[Database] = weakref.WeakSet()


class Database:
    """A connection for one process, usable from its threads one at a time.

    *patience*, in seconds, is how long it waits for other writers.
    """

    def __init__(self, location: Location, patience: float) -> None:
        self.path = location.path
        self.lock = threading.RLock()
        self._pid = os.getpid()
        self._grouped = False
        self._busy = 0.0  # seconds waited for programs that do not know the gate
        self._synchronous = self._pressed = location.synchronous
        self._gate = Gate(self.path.with_name(self.path.name + ".lock"), patience)
        try:
            with self._through_gate(), told_plainly(self.path):
                self._connection = connect(location, patience)
        except BaseException:
            self._gate.close()
            raise
        self._identity = file_identity(self.path)
        self._close = weakref.finalize(
            self, _close, self.lock, self._connection, self._gate, self._pid
        )
        _open_databases.add(self)

    @property
    def waited(self) -> float:
        """Seconds spent waiting for other writers."""
        return self._gate.waited + self._busy

    @contextmanager
    def write(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """A transaction, or a part of the group's that can be undone alone.

        One that is not *durable* survives a kill; a power cut may undo it, together with what came
        after it, until the next durable one.
        """
        self._check_process()
        with self.lock:
            self._check_open()
            step = self._savepoint() if self._grouped else self._transaction(durable)
            with told_plainly(self.path), step:
                yield self._connection

    @contextmanager
    def group(self) -> Iterator[None]:
        """One transaction for all that this thread writes inside."""
        self._check_process()
        with self.lock:
            self._check_open()
            if self._grouped:
                yield
                return
            with self._transaction(True):
                self._grouped = True
                try:
                    yield
                finally:
                    self._grouped = False

    def rows(self, sql: str, parameters: Mapping[str, Any] | Sequence[Any] = ()) -> list[Any]:
        """All rows of a query; inside a group with what it wrote."""
        self._check_process()
        with self.lock, told_plainly(self.path):
            self._check_open()
            self._check_file()
            return self._connection.execute(sql, parameters).fetchall()

    def close(self) -> None:
        if self._pid == os.getpid():
            with self.lock:
                self._close()

    def forget(self) -> None:
        """In a forked child: give up what belongs to the parent, without touching its locks."""
        _inherited.append(self._connection)
        if self._close.detach():
            self._gate.close_in_child()

    @contextmanager
    def _transaction(self, durable: bool) -> Iterator[None]:
        with self._through_gate():
            self._check_file()
            try:
                with told_plainly(self.path):
                    self._press(self._synchronous if durable else "NORMAL")
                    self._begin()
                yield
                with told_plainly(self.path):
                    self._connection.execute("COMMIT")
            except BaseException:
                self._roll_back("ROLLBACK")
                raise

    def _begin(self) -> None:
        started = time.monotonic()
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        finally:
            took = time.monotonic() - started
            if took >= BUSY_SECONDS:
                self._busy += took

    def _press(self, synchronous: str) -> None:
        """Set how the next commit is pressed to disk."""
        if synchronous != self._pressed:
            self._connection.execute(f"PRAGMA synchronous = {synchronous}")
            self._pressed = synchronous

    @contextmanager
    def _savepoint(self) -> Iterator[None]:
        if not self._connection.in_transaction:
            raise StoreUnavailableError(
                f"An earlier failure undid the whole group of writes to {self.path}."
            )
        self._connection.execute("SAVEPOINT call")
        try:
            yield
        except BaseException:
            self._roll_back("ROLLBACK TO call", "RELEASE call")
            raise
        self._connection.execute("RELEASE call")

    def _roll_back(self, *statements: str) -> None:
        # After some failures, such as a full disk, SQLite has rolled back by itself.
        for statement in statements:
            if self._connection.in_transaction:
                self._connection.execute(statement)

    @contextmanager
    def _through_gate(self) -> Iterator[None]:
        try:
            self._gate.acquire()
            yield
        finally:
            self._gate.release()

    def _check_open(self) -> None:
        if not self._close.alive:
            raise StoreError(f"The store {self.path} is closed.")

    def _check_file(self) -> None:
        if self._identity is not None:
            check_same_file(self.path, self._identity)

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise opened_before_fork(self.path, self._pid)


def _close(lock: threading.RLock, connection: sqlite3.Connection, gate: Gate, pid: int) -> None:
    if pid != os.getpid():
        return
    # At the end of the process a thread may be in the middle of a call: closing under it would
    # crash, and the system closes the files anyway.
    if not lock.acquire(timeout=LAST_CALL_SECONDS):
        return
    try:
        _close_through(gate, connection)
    finally:
        lock.release()


def _close_through(gate: Gate, connection: sqlite3.Connection) -> None:
    # The last to close moves the log into the database. Whoever holds the gate for longer than the
    # patience has the database open itself, so that this is not the last; and where the folder has
    # been deleted there is nothing to move.
    try:
        gate.acquire()
    except StoreUnavailableError:
        connection.close()
    else:
        connection.close()
        gate.release()
    gate.close()


def _forget_all() -> None:
    for database in list(_open_databases):
        database.forget()


os.register_at_fork(after_in_child=_forget_all)
