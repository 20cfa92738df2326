"""Says what went wrong with a database file, and what to do, in place of SQLite's own errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scrapy_hexshard.errors import StoreError, StoreUnavailableError

_ADVICE = {
    sqlite3.SQLITE_BUSY: "Another program keeps it locked. Close that program and start again.",
    sqlite3.SQLITE_LOCKED: "Another program keeps it locked. Close that program and start again.",
    sqlite3.SQLITE_FULL: "The disk is full. Free some space and start again: nothing is lost.",
    sqlite3.SQLITE_IOERR: "Look at the disk, and whether it is full, and start again.",
    sqlite3.SQLITE_READONLY: "Give this user write access to the file and its folder.",
    sqlite3.SQLITE_CANTOPEN: "See that the file and its folder exist and this user may use them.",
    sqlite3.SQLITE_PERM: "Give this user write access to the file and its folder.",
    sqlite3.SQLITE_CORRUPT: "The file is damaged. Restore it from a copy, or load a new store.",
    sqlite3.SQLITE_NOTADB: "It is not an SQLite database. Name another file for the store.",
}


@contextmanager
def told_plainly(path: Path) -> Iterator[None]:
    """Raise StoreUnavailableError for any error of SQLite inside."""
    try:
        yield
    except sqlite3.Error as error:
        # The low byte is the kind; the rest of an extended code says where it happened.
        kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
        advice = _ADVICE.get(kind, "Nothing of this step was stored.")
        raise StoreUnavailableError(f"Cannot use the store {path}: {error}. {advice}") from error


def opened_before_fork(path: Path, process: int) -> StoreError:
    """The error of a store that is used in a child of the process that opened it."""
    return StoreError(
        f"The store {path} was opened by process {process}, before a fork. Open one in each "
        "process."
    )


def check_same_file(path: Path, identity: tuple[int, int]) -> None:
    """Raise StoreUnavailableError unless *path* still names the file with this *identity*."""
    found = file_identity(path)
    if found != identity:
        happened = "deleted" if found is None else "replaced by another file"
        raise StoreUnavailableError(
            f"The store {path} was {happened} while it was in use. Put the file back, or load a "
            "new store, and start again."
        )


def file_identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file at *path*, or None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
