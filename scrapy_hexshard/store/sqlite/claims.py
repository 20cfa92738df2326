"""Chooses the keys a worker gets next, and takes back those that others lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from scrapy_hexshard.config import RetryPolicy
from scrapy_hexshard.store.contract import Claim, State
from scrapy_hexshard.store.named_queries import named_queries
from scrapy_hexshard.store.process import ProcessIdentity
from scrapy_hexshard.store.sqlite.deltas import Deltas
from scrapy_hexshard.store.sqlite.returning import Returned, Returning

DUE_AT_ONCE = 10_000

_SQL = named_queries("sqlite")

# rank, id, attempts, deaths, lone deaths, key, payload
_Row: TypeAlias = tuple[int, int, int, int, int, str, str | None]


@dataclass(frozen=True, slots=True)
class Claiming:
    """One worker's claim within a transaction, at the time *now* in milliseconds."""

    connection: sqlite3.Connection
    shard: int
    worker: int
    now: int
    policy: RetryPolicy
    condemned: list[str] = field(default_factory=list)  # keys that workers died with too often

    def take(self, limit: int, lease: int) -> list[Claim]:
        """Lease up to *limit* keys for *lease* milliseconds, or one suspect."""
        deltas = Deltas()
        self._return_due(deltas)
        ready, lapsed = self._choose(limit, deltas)
        if chosen := sorted(ready + lapsed, key=_place) if lapsed else ready:
            base = self._token_base([row[1] for row in chosen])
            self._lease_ready(ready, base, self.now + lease, deltas)
            self._lease_lapsed(lapsed, base, self.now + lease)
            claims = [
                Claim(key, id_, base + id_, attempts + 1, payload, -rank)
                for rank, id_, attempts, _, _, key, payload in chosen
            ]
        else:
            claims = self._take_suspect(lease, deltas)
        deltas.store(self.connection)
        return claims

    def take_back(self, here: ProcessIdentity) -> None:
        """Return what workers held whose process is dead, as seen from the process *here*."""
        deltas = Deltas()
        place = {"shard": self.shard, "worker": self.worker}
        for holder, *identity in self.connection.execute(_SQL["holders"], place).fetchall():
            if ProcessIdentity(*identity).is_dead(here):
                self._return("left_behind", State.RUNNING, deltas, worker=holder)
        deltas.store(self.connection)

    def _return_due(self, deltas: Deltas) -> None:
        self._return("due_retries", State.FAILED, deltas, limit=DUE_AT_ONCE)

    def _return(self, query: str, source: State, deltas: Deltas, **more: int) -> bool:
        """Put back what *query* finds; whether it finds anything."""
        asked = {"shard": self.shard, "now": self.now, **more}
        found = self.connection.execute(_SQL[query], asked).fetchall()
        if found:
            returning = Returning(self.connection, self.shard, self.now, self.policy)
            self.condemned.extend(returning.put([*map(Returned._make, found)], source, deltas))
        return bool(found)

    def _set_apart(self, deltas: Deltas) -> bool:
        """Put back the lapsed keys that are suspects now, or condemned; whether there were any."""
        return self._return(
            "lapsed_apart",
            State.RUNNING,
            deltas,
            worker=self.worker,
            max_deaths=self.policy.max_deaths,
            max_lone_deaths=self.policy.max_lone_deaths,
        )

    def _choose(self, limit: int, deltas: Deltas) -> tuple[list[_Row], list[_Row]]:
        """The first *limit* of the ready keys and of those whose lease another worker lost."""
        asked = {"shard": self.shard, "now": self.now, "worker": self.worker, "limit": limit}
        lapsed = self.connection.execute(_SQL["lapsed"], asked).fetchall()
        if lapsed and self._set_apart(deltas):
            lapsed = self.connection.execute(_SQL["lapsed"], asked).fetchall()
        ready = self.connection.execute(_SQL["ready"], asked).fetchall()
        if lapsed:
            first = {row[1] for row in sorted(ready + lapsed, key=_place)[:limit]}
            ready = [row for row in ready if row[1] in first]
            lapsed = [row for row in lapsed if row[1] in first]
        return ready, lapsed

    def _take_suspect(self, lease: int, deltas: Deltas) -> list[Claim]:
        """Lease the next suspect alone, if there is one and the worker holds nothing."""
        place = {"shard": self.shard, "worker": self.worker}
        row = self.connection.execute(_SQL["next_suspect"], place).fetchone()
        if row is None:
            return []
        rank, id_, attempts, key, payload = row
        token = self._token_base([id_]) + id_
        leased = {"id": id_, "token": token, "worker": self.worker, "until": self.now + lease}
        self.connection.execute(_SQL["lease_suspect"], leased)
        self.connection.execute(_SQL["take_suspect"], (id_,))
        deltas.move(self.shard, State.PENDING, State.RUNNING)
        return [Claim(key, id_, token, attempts + 1, payload, -rank, lone=True)]

    def _token_base(self, ids: list[int]) -> int:
        """What added to each of the ids makes a token that was never given before."""
        first, last = min(ids), max(ids)
        step = {"n": last - first + 1, "now": self.now}
        latest: int = self.connection.execute(_SQL["take_tokens"], step).fetchall()[0][0]
        return latest - last

    def _lease_ready(self, rows: list[_Row], base: int, until: int, deltas: Deltas) -> None:
        if rows:
            upto = {"shard": self.shard, "rank": rows[-1][0], "id": rows[-1][1]}
            lease = {"base": base, "until": until, "worker": self.worker}
            self.connection.execute(_SQL["lease_ready"], upto | lease)
            self.connection.execute(_SQL["take_ready"], upto)
            deltas.move(self.shard, State.PENDING, State.RUNNING, len(rows))

    def _lease_lapsed(self, rows: list[_Row], base: int, until: int) -> None:
        self.connection.executemany(
            _SQL["lease_lapsed"],
            [
                (until, base + id_, self.worker, deaths, lone_deaths, id_)
                for _, id_, _, deaths, lone_deaths, _, _ in rows
            ],
        )


def _place(row: _Row) -> tuple[int, int]:
    return row[0], row[1]


def park(connection: sqlite3.Connection, claims: Sequence[Claim]) -> None:
    """Note of those *claims* that are still held that nothing of them is in flight."""
    held = running(connection, claims)
    kept = id_list(claim.id for claim in claims if (claim.id, claim.token) in held)
    connection.execute(_SQL["park"], (kept,))


def renew(connection: sqlite3.Connection, claims: Sequence[Claim], until: int) -> list[Claim]:
    """Extend the leases of those *claims* that are still held, and return them."""
    held = running(connection, claims)
    kept = [claim for claim in claims if (claim.id, claim.token) in held]
    if kept:
        longer = {"ids": id_list(claim.id for claim in kept), "until": until}
        connection.execute(_SQL["renew"], longer)
    return kept


def running(
    connection: sqlite3.Connection, claims: Iterable[Claim]
) -> dict[tuple[int, int], tuple[int, int, int]]:
    """Shard, attempts and deaths of each leased key in *claims*, by its id and lease token."""
    rows = connection.execute(_SQL["running"], (id_list(claim.id for claim in claims),))
    return {(id_, token): (shard, attempts, deaths) for id_, token, shard, attempts, deaths in rows}


def id_list(ids: Iterable[int]) -> str:
    """The ids as one parameter, a JSON array."""
    return f"[{','.join(map(str, ids))}]"
