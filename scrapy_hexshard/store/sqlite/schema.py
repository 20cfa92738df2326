"""Creates the tables of a new store, and checks that an existing one is the crawl meant."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scrapy_hexshard.errors import StoreMismatchError
from scrapy_hexshard.keys import CANONICAL_KEY_VERSION
from scrapy_hexshard.store.named_queries import named_queries, statements

SCHEMA_VERSION = 2

_SQL = named_queries("sqlite")


def create_tables(connection: sqlite3.Connection, count: int) -> None:
    """Create the tables for *count* shards."""
    for statement in statements(_SQL["schema"]):
        connection.execute(statement)
    connection.execute(_SQL["first_sequence"])
    connection.execute(_SQL["first_counts"], (count,))
    meta = {"schema": SCHEMA_VERSION, "shards": count, "key_version": CANONICAL_KEY_VERSION}
    connection.executemany(_SQL["set_meta"], meta.items())


def check_meta(path: Path, meta: Mapping[str, Any], count: int | None) -> int:
    """The number of shards of a store with this *meta*; raises StoreMismatchError."""
    version = meta.get("schema")
    if version != SCHEMA_VERSION:
        raise StoreMismatchError(
            f"{path} has schema {version}; this version of scrapy-hexshard reads schema "
            f"{SCHEMA_VERSION}. Use the version that wrote it: pip install -U scrapy-hexshard."
        )
    if meta["key_version"] != CANONICAL_KEY_VERSION:
        raise StoreMismatchError(
            f"The keys in {path} have the canonical form {meta['key_version']}; this version of "
            f"scrapy-hexshard uses {CANONICAL_KEY_VERSION}. Load the keys into a new store."
        )
    stored = int(meta["shards"])
    if count not in (None, stored):
        raise StoreMismatchError(
            f"{path} was created for a crawl of {stored} shards, not {count}. Run it with "
            f"hexdigest-shard run --shards {stored} (by hand, set CRAWL_SHARDS={stored} and "
            "CRAWL_SHARD), or load the keys into a new store."
        )
    return stored
