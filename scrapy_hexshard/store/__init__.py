"""Opens the store a URL or path names; a backend's driver is imported only then."""

from __future__ import annotations

from typing import Any

from scrapy_hexshard.errors import StoreError
from scrapy_hexshard.sharding import ShardSpec
from scrapy_hexshard.store.contract import WorkStore


def open_store(url: str, shards: ShardSpec | int | None = None, **options: Any) -> WorkStore:
    """The store at *url*: ``sqlite:///crawl.sqlite3`` or a bare path.

    *shards* is the shard to work on, or only their number, or None to take the number from a store
    that exists. *options* go to the backend. Raises StoreError, StoreMismatchError or
    StoreUnavailableError.
    """
    scheme, separator, _ = url.partition("://")
    if separator and scheme != "sqlite":
        raise StoreError(
            f"No store for {scheme}:// in this version: use a path, or sqlite:///crawl.sqlite3."
        )
    from scrapy_hexshard.store.sqlite import SQLiteWorkStore  # noqa: PLC0415

    return SQLiteWorkStore(url, shards, **options)
