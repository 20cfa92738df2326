"""Opens the database of a store: finds it, creates it, or says why it cannot be used."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TypeAlias

from scrapy_hexshard.errors import StoreError, StoreUnavailableError
from scrapy_hexshard.store.named_queries import named_queries
from scrapy_hexshard.store.sqlite.connection import APPLICATION_ID
from scrapy_hexshard.store.sqlite.database import Database
from scrapy_hexshard.store.sqlite.location import Location
from scrapy_hexshard.store.sqlite.reader import Reader
from scrapy_hexshard.store.sqlite.schema import check_meta, create_tables

OLDEST_SQLITE = (3, 37, 0)

Connected: TypeAlias = Database | Reader

_SQL = named_queries("sqlite")


def open_database(
    location: Location, count: int | None, *, create: bool, readonly: bool, patience: float
) -> tuple[Connected, int]:
    """The open database and its number of shards, which is *count* if that is given."""
    check_sqlite(sqlite3.sqlite_version_info)
    location.check(readonly=readonly)
    if location.exists:
        _check_is_store(location.path)
    elif readonly or not create or count is None:
        raise _missing(location.path)
    database = Reader(location.path) if readonly else Database(location, patience)
    try:
        return database, _agree_on(database, count)
    except BaseException:
        database.close()
        raise


def check_sqlite(version: tuple[int, int, int]) -> None:
    """Raise StoreError if the SQLite that Python was built with is too old."""
    if version < OLDEST_SQLITE:
        raise StoreError(
            f"Python was built with SQLite {'.'.join(map(str, version))}; a store needs "
            f"{'.'.join(map(str, OLDEST_SQLITE))} or newer. Use a newer Python."
        )


def _check_is_store(path: Path) -> None:
    # Through SQLite: to open the file ourselves and close it would drop the locks that another
    # store in this process has on it.
    reader = Reader(path)
    try:
        found = reader.rows("PRAGMA application_id")[0][0]
    finally:
        reader.close()
    if found != APPLICATION_ID:
        raise StoreUnavailableError(
            f"{path} is not a store, but a database or file of something else. Name another file "
            "for the store."
        )


def _agree_on(database: Connected, count: int | None) -> int:
    if isinstance(database, Database) and count is not None:
        with database.write() as connection:
            if not connection.execute(_SQL["is_created"]).fetchone():
                create_tables(connection, count)
    if not database.rows(_SQL["is_created"]):
        raise _missing(database.path)
    return check_meta(database.path, dict(database.rows(_SQL["meta"])), count)


def _missing(path: Path) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"There is no store at {path}. Check the path; the first crawl makes one, and so does "
        f"hexdigest-shard load {path} LIST --shards N."
    )
