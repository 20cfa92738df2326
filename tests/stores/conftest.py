"""Fixtures for what is true of the SQLite store only."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from scrapy_hexshard import ShardSpec, SQLiteWorkStore

ALONE = ShardSpec(0, 1)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "crawl.sqlite3"


@pytest.fixture
def store(path):
    with SQLiteWorkStore(path, ALONE) as store:
        yield store


@pytest.fixture
def query(path):
    """Run SQL on the database from outside the store."""

    def run(sql, *values):
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            return connection.execute(sql, values).fetchall()

    return run
