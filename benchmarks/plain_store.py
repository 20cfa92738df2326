"""A work store as one would write it on an afternoon, with care: what the store is measured beside.

One table, keyed by the URL, with the index its queries need; a connection for each call, so that
none is shared or left behind; a write-ahead log; a transaction for each key that is done. A claim
takes what is pending OR was leased for too long, first in, first out. The OR keeps SQLite from
reading the keys in that order out of the index, so that it sorts them; a claim in no order is there
to show what that costs.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from scrapy_hexshard import canonical_key, stable_owner

PRAGMAS = ("journal_mode = WAL", "synchronous = {synchronous}")  # the former stays in the file

SCHEMA = """
CREATE TABLE IF NOT EXISTS work (
  key TEXT PRIMARY KEY,
  shard INTEGER NOT NULL,
  state TEXT NOT NULL DEFAULT 'pending',
  lease_until REAL,
  worker TEXT,
  attempts INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS work_to_claim ON work (shard, state, lease_until);
"""
ADD = "INSERT OR IGNORE INTO work (key, shard) VALUES (?, ?)"
CLAIM = """
UPDATE work
SET state = 'running', lease_until = :until, worker = :worker, attempts = attempts + 1
WHERE key IN (
  SELECT key FROM work
  WHERE shard = :shard
    AND (state = 'pending' OR (state = 'running' AND lease_until < :now))
  ORDER BY rowid
  LIMIT :limit
)
RETURNING key
"""
CLAIM_IN_NO_ORDER = CLAIM.replace("  ORDER BY rowid\n", "")
COMPLETE = "UPDATE work SET state = 'done' WHERE key = ? AND worker = ? AND state = 'running'"


class PlainStore:
    """The plain store at *path*, for one worker of a shard."""

    def __init__(
        self, path: Path, shard: int, shards: int, synchronous: str, *, in_order: bool = True
    ) -> None:
        self._path = path
        self._shard = shard
        self._shards = shards
        self._synchronous = synchronous
        self._claim = CLAIM if in_order else CLAIM_IN_NO_ORDER
        self._worker = f"worker-{os.getpid()}"
        if not path.exists():
            with self._connection() as connection:
                connection.execute(f"PRAGMA {PRAGMAS[0]}")
                connection.executescript(SCHEMA)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self._path, timeout=60)
        try:
            connection.execute(f"PRAGMA {PRAGMAS[1].format(synchronous=self._synchronous)}")
            with connection:  # commits
                yield connection
        finally:
            connection.close()

    def enqueue(self, keys: Iterable[str]) -> None:
        """Add the keys, all in one transaction."""
        rows = ((key, stable_owner(key, self._shards)) for key in map(canonical_key, keys))
        with self._connection() as connection:
            connection.executemany(ADD, rows)

    def claim(self, limit: int, lease_seconds: float) -> list[str]:
        """Lease up to *limit* keys of the shard."""
        now = time.time()
        asked = {"shard": self._shard, "now": now, "limit": limit}
        lease = {"until": now + lease_seconds, "worker": self._worker}
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            return [key for (key,) in connection.execute(self._claim, asked | lease)]

    def complete(self, *keys: str) -> None:
        """Mark keys done, each in a transaction of its own."""
        for key in keys:
            with self._connection() as connection:
                connection.execute(COMPLETE, (key, self._worker))

    def close(self) -> None:
        """Nothing is open between two calls."""
