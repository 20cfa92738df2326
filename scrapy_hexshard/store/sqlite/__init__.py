"""The store in one SQLite file, for the workers of one machine."""

from scrapy_hexshard.store.sqlite.store import SQLiteWorkStore

__all__ = ["SQLiteWorkStore"]
