"""SQLiteWorkStore: the store contract on one file."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from scrapy_hexshard.config import DEFAULT_LEASE_SECONDS, DEFAULT_RETRY, RetryPolicy
from scrapy_hexshard.errors import StoreError, StoreMismatchError
from scrapy_hexshard.sharding import ShardSpec, check_count
from scrapy_hexshard.store.batches import key_batches
from scrapy_hexshard.store.clock import StoreClock
from scrapy_hexshard.store.contract import (
    Claim,
    OpenShard,
    OpenWork,
    Settled,
    Settlement,
    ShardCounts,
    State,
    Work,
    WorkStore,
    check_claim,
)
from scrapy_hexshard.store.named_queries import named_queries
from scrapy_hexshard.store.process import ProcessIdentity
from scrapy_hexshard.store.sqlite.claims import Claiming, park, renew
from scrapy_hexshard.store.sqlite.deltas import Deltas
from scrapy_hexshard.store.sqlite.keys import add_keys
from scrapy_hexshard.store.sqlite.location import Location
from scrapy_hexshard.store.sqlite.open_work import open_work
from scrapy_hexshard.store.sqlite.opening import open_database
from scrapy_hexshard.store.sqlite.settling import Endings, Settling
from scrapy_hexshard.store.sqlite.worker import Worker

PATIENCE = 120.0  # a backup, or a big load by hand, may well take a minute
ITEMS_AT_ONCE = 500

_SQL = named_queries("sqlite")


class SQLiteWorkStore(WorkStore):
    """The keys of one crawl in an SQLite file, for the workers of one machine.

    *path* is a path, ``sqlite:///relative``, or ``sqlite:////absolute``; a URL may end in
    ``?synchronous=NORMAL``, with which a power cut can lose the last commits. *shards* is the shard
    to work on; only their number, to load and look; or None, for a store that exists. *clock* gives
    the time in seconds since 1970. With *create* false a missing file is an error. With *readonly*
    nothing is written, locked or created. *patience* is how many seconds it waits for others.
    *identity* is the process the worker is taken for, by default this one.

    Raises StoreError, StoreMismatchError or StoreUnavailableError, and changes nothing then.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        shards: ShardSpec | int | None = None,
        *,
        policy: RetryPolicy = DEFAULT_RETRY,
        clock: Callable[[], float] | None = None,
        create: bool = True,
        readonly: bool = False,
        patience: float = PATIENCE,
        identity: ProcessIdentity | None = None,
    ) -> None:
        location = Location.parse(path)
        self.path = location.path
        self.shard = shards if isinstance(shards, ShardSpec) else None
        count = shards.count if isinstance(shards, ShardSpec) else shards
        if count is not None:
            check_count(count)
        self._durable = location.synchronous == "FULL"
        self._policy = policy
        self._clock = StoreClock(clock or time.time)
        self._worker = Worker(identity or ProcessIdentity.of_this())
        self._db, self.shard_count = open_database(
            location, count, create=create, readonly=readonly, patience=patience
        )

    @property
    def durable(self) -> bool:
        return self._durable

    @property
    def gate_wait_seconds(self) -> float:
        """How long this store has waited, in all, for other writers."""
        return self._db.waited

    def enqueue(self, keys: Iterable[str | Work]) -> int:
        added = 0
        for rows in key_batches(keys):
            with self._write() as connection:
                deltas = Deltas()
                added += add_keys(connection, rows, self.shard_count, deltas)
                deltas.store(connection)
        return added

    def claim(self, limit: int = 100, lease_seconds: float = DEFAULT_LEASE_SECONDS) -> list[Claim]:
        shard, lease = self._own_shard(), _milliseconds(lease_seconds)
        if limit < 1:
            return []
        # After a power cut nobody is left to work on a claim, so that none need survive it.
        with self._write(durable=False) as connection:
            stored, holds_suspect = connection.execute(
                _SQL["before_claim"], (self._worker.id,)
            ).fetchone()
            if holds_suspect:
                return []
            now = self._clock.now(stored)
            worker = self._worker.registered(connection, shard, now)
            claiming = Claiming(connection, shard, worker, now, self._policy)
            if not self._worker.has_claimed:
                self._worker.has_claimed = True
                claiming.take_back(self._worker.identity)
            claims = claiming.take(limit, lease)
            self._worker.condemned += tuple(claiming.condemned)
            return claims

    @property
    def condemned(self) -> tuple[str, ...]:
        return self._worker.condemned

    def renew(
        self, claims: Iterable[Claim], lease_seconds: float = DEFAULT_LEASE_SECONDS
    ) -> list[Claim]:
        asked, lease = list(claims), _milliseconds(lease_seconds)
        with self._write(durable=False) as connection:
            now = self._now(connection)
            kept = renew(connection, asked, now + lease)
            if kept:
                _keep_time(connection, now)
            return kept

    def park(self, claims: Iterable[Claim]) -> None:
        parked = list(claims)
        for claim in parked:
            check_claim(claim)
        with self._write(durable=False) as connection:
            park(connection, parked)

    def settle(self, settlements: Iterable[Settlement]) -> Settled:
        endings = Endings(settlements)
        if not endings.settlements:
            return Settled([], [])
        with self._settling() as settling:
            return settling.apply(endings)

    def complete(self, *claims: Claim) -> bool:
        for claim in claims:
            check_claim(claim)
        if not claims:
            return True
        with self._settling() as settling:
            return settling.complete(claims)

    @contextmanager
    def group(self) -> Iterator[None]:
        with self._db.lock, self._worker.unless_undone(), self._db.group():
            yield

    def counts(self, *, all_shards: bool = False) -> Mapping[State, int]:
        if self.shard is None or all_shards:
            return _by_state(self._db.rows(_SQL["total"])[0])
        return _by_state(self._db.rows(_SQL["counts"], (self.shard.index,))[0])

    def shard_counts(self) -> list[ShardCounts]:
        rows = self._db.rows(_SQL["shard_counts"])
        return [ShardCounts(shard, _by_state(counts)) for shard, *counts in rows]

    def outcomes(self) -> Mapping[str, int]:
        return dict(self._db.rows(_SQL["outcomes"]))

    def open_work(self) -> OpenWork:
        asked = {"shard": self._own_shard(), "worker": self._worker.id or 0}
        return open_work(self._db.rows(_SQL["open_work"], asked)[0], self._clock)

    def open_shards(self) -> list[OpenShard]:
        rows = self._db.rows(_SQL["open_shards"])
        return [
            OpenShard(shard, keys, seen and max(0, self._clock.now(stored) - seen) / 1000)
            for shard, keys, seen, stored in rows
        ]

    def item_lines(self) -> Iterator[str]:
        last = 0
        while rows := self._db.rows(_SQL["items"], (last, ITEMS_AT_ONCE)):
            yield from (item for _, item in rows)
            last = rows[-1][0]

    def companions(self, within: float) -> int:
        here = self._worker.identity
        with self._write(durable=False) as connection:
            since = self._now(connection) - _milliseconds(within)
            asked = {"shard": self._own_shard(), "worker": self._worker.id or 0, "since": since}
            seen = connection.execute(_SQL["companions"], asked).fetchall()
        return sum(not ProcessIdentity(*each).is_dead(here) for each in seen)

    def bind_spider(self, name: str) -> None:
        with self._write() as connection:
            stored = dict(connection.execute(_SQL["meta"])).get("spider")
            if stored is None:
                connection.execute(_SQL["set_meta"], ("spider", name))
            elif stored != name:
                raise StoreMismatchError(
                    f"{self.path} belongs to the spider {stored!r}, not {name!r}. Give each "
                    "spider its own store, such as HEXSHARD_STORE = '%(spider)s.sqlite3'."
                )

    def register(self) -> None:
        self._note("beat")

    def heartbeat(self) -> None:
        self._note("beat")

    def stopping(self) -> None:
        self._note("stop")

    def end(self, reason: str) -> None:
        self._note("end", reason=reason)

    def close(self) -> None:
        self._db.close()

    def _own_shard(self) -> int:
        if self.shard is None:
            raise StoreError(
                f"{self.path} was opened without a shard to work on. Open it with "
                f"ShardSpec(index, {self.shard_count})."
            )
        return self.shard.index

    @contextmanager
    def _write(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        with (
            self._db.lock,
            self._worker.unless_undone(),
            self._db.write(durable=durable) as connection,
        ):
            yield connection

    @contextmanager
    def _settling(self) -> Iterator[Settling]:
        with self._write() as connection:
            now = self._now(connection)
            yield Settling(connection, now, self.shard_count, self._policy, random.random)
            _keep_time(connection, now)

    def _now(self, connection: sqlite3.Connection) -> int:
        return self._clock.now(connection.execute(_SQL["now"]).fetchone()[0])

    def _note(self, query: str, **values: Any) -> None:
        with self._write() as connection:
            now = self._now(connection)
            self._worker.note(connection, self._own_shard(), now, query, **values)
            _keep_time(connection, now)


def _keep_time(connection: sqlite3.Connection, now: int) -> None:
    connection.execute(_SQL["set_now"], (now, now))


def _milliseconds(lease_seconds: float) -> int:
    if not 0 < lease_seconds < 10**9:
        raise StoreError(f"A lease is a number of seconds above 0, not {lease_seconds!r}.")
    return max(1, round(lease_seconds * 1000))


def _by_state(values: Iterable[int]) -> dict[State, int]:
    return dict(zip(State, values, strict=True))
