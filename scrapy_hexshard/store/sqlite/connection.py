"""Connects for writing, with every setting that matters made explicit."""

from __future__ import annotations

import sqlite3

from scrapy_hexshard.store.sqlite.location import Location

APPLICATION_ID = 0x48455853  # "HEXS"

_PRAGMAS = (
    "wal_autocheckpoint = 4000",  # pages; a checkpoint runs inside COMMIT, so under the gate
    "journal_size_limit = 67108864",
    "cache_size = -65536",
    "mmap_size = 0",
    "secure_delete = OFF",
    "temp_store = MEMORY",
    "locking_mode = NORMAL",
    "automatic_index = OFF",
    "foreign_keys = OFF",
    "recursive_triggers = OFF",
    "trusted_schema = OFF",
)


def connect(location: Location, patience: float) -> sqlite3.Connection:
    """A connection to the database, which is created if there is none.

    *patience*, in seconds, is how long it waits for programs that do not know the gate.
    """
    connection = sqlite3.connect(
        f"{location.path.as_uri()}?mode=rwc",
        uri=True,
        timeout=patience,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    try:
        _prepare(connection, location.synchronous)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, synchronous: str) -> None:
    if not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
        connection.execute("PRAGMA page_size = 4096")
        connection.execute("PRAGMA encoding = 'UTF-8'")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
        raise sqlite3.OperationalError("this place does not support a write-ahead log")
    for pragma in (*_PRAGMAS, f"synchronous = {synchronous}"):
        connection.execute(f"PRAGMA {pragma}")
    if synchronous == "FULL":
        connection.execute("PRAGMA fullfsync = ON")  # macOS: fsync alone stops at the drive
