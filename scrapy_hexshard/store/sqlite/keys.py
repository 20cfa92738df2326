"""Adds keys to the database, and changes known ones as far as that is still possible."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from scrapy_hexshard.sharding import digest_owner
from scrapy_hexshard.store.batches import KeyRow
from scrapy_hexshard.store.contract import State
from scrapy_hexshard.store.named_queries import named_queries
from scrapy_hexshard.store.sqlite.deltas import Deltas

_SQL = named_queries("sqlite")


def add_keys(
    connection: sqlite3.Connection,
    rows: Sequence[KeyRow],
    shards: int,
    deltas: Deltas,
    *,
    replaces: bool = True,
) -> int:
    """Add the rows of unknown keys, in their order, and return how many those were.

    A known key that is pending or failed takes the higher priority and, if a row *replaces* what
    is known, a payload given.
    """
    last = connection.execute(_SQL["last_key"]).fetchone()[0]
    added = connection.executemany(_SQL["add_key"], rows).rowcount
    new, known = list(enumerate(rows, last + 1)), list[KeyRow]()
    if added < len(rows):
        new, known = _told_apart(connection, rows, last)
    ready = sorted((digest_owner(row.digest, shards), -row.priority, id_) for id_, row in new)
    connection.executemany(_SQL["add_ready"], ready)
    for shard, _, _ in ready:
        deltas.move(shard, None, State.PENDING)
    for row in known:
        change = row if replaces else row._replace(payload=None)
        _change(connection, change, digest_owner(row.digest, shards))
    return added


def _told_apart(
    connection: sqlite3.Connection, rows: Sequence[KeyRow], last: int
) -> tuple[list[tuple[int, KeyRow]], list[KeyRow]]:
    """The rows that were added, with their ids, and those whose key was known."""
    added = {digest: id_ for id_, digest in connection.execute(_SQL["keys_added"], (last,))}
    new, known = [], []
    for row in rows:
        id_ = added.pop(row.digest, None)
        if id_ is None:
            known.append(row)
        else:
            new.append((id_, row))
    return new, known


def _change(connection: sqlite3.Connection, row: KeyRow, shard: int) -> None:
    given = {"digest": row.digest, "payload": row.payload, "priority": row.priority}
    found = connection.execute(_SQL["known_key"], given).fetchone()
    if found is None:
        return
    id_, priority = found
    rank = -max(priority, row.priority)
    place = {"id": id_, "shard": shard, "old_rank": -priority, "rank": rank}
    if (
        connection.execute(_SQL["raise_ready"], place).rowcount
        or connection.execute(_SQL["raise_failed"], place).rowcount
        or connection.execute(_SQL["raise_suspect"], place).rowcount
    ):
        change = {"id": id_, "payload": row.payload, "rank": rank}
        connection.execute(_SQL["change_key"], change)
