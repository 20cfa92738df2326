"""Ends claims in one transaction, with all that belongs to their ends."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from scrapy_hexshard.config import RetryPolicy
from scrapy_hexshard.errors import StoreError
from scrapy_hexshard.store.batches import KeyRow, item_text, key_row
from scrapy_hexshard.store.contract import DONE, Claim, Kind, Settled, Settlement, State
from scrapy_hexshard.store.named_queries import named_queries
from scrapy_hexshard.store.outcomes import outcome_text
from scrapy_hexshard.store.sqlite.claims import id_list, running
from scrapy_hexshard.store.sqlite.deltas import Deltas
from scrapy_hexshard.store.sqlite.ends import Ends
from scrapy_hexshard.store.sqlite.keys import add_keys

MAX_WAIT = 10**9  # seconds

_SQL = named_queries("sqlite")


@dataclass(frozen=True, slots=True)
class Brought:
    """What a completed key brought, checked: JSON texts, and keys as rows."""

    items: list[str]
    discovered: list[KeyRow]


class Endings:
    """Settlements made ready before any lock is taken.

    Raises PayloadError, InvalidKeyError or StoreError for what cannot be stored.
    """

    def __init__(self, settlements: Iterable[Settlement]) -> None:
        self.settlements = list(settlements)
        for settlement in self.settlements:
            _check_wait(settlement.retry_in)
        self._brought = {
            id(settlement): _brought_by(settlement)
            for settlement in self.settlements
            if settlement.kind is Kind.COMPLETE and (settlement.items or settlement.discovered)
        }

    def brought(self, settlement: Settlement) -> Brought | None:
        """What the key of *settlement* brought, if anything."""
        return self._brought.get(id(settlement)) if self._brought else None


class Settling:
    """Ends claims within a transaction, at the time *now* in milliseconds."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        now: int,
        shards: int,
        policy: RetryPolicy,
        jitter: Callable[[], float],
    ) -> None:
        self._connection = connection
        self._now = now
        self._shards = shards
        self._policy = policy
        self._jitter = jitter
        self._deltas = Deltas()
        self._ends = Ends(connection)
        self._completed: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
        self._released: defaultdict[str, list[int]] = defaultdict(list)
        self._rows: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self._discovered: list[KeyRow] = []

    def apply(self, endings: Endings) -> Settled:
        """End the claims that are still held, in their order."""
        applied: list[Claim] = []
        stale: list[Claim] = []
        held = running(self._connection, [each.claim for each in endings.settlements])
        for settlement in endings.settlements:
            claim = settlement.claim
            # A claim that is settled twice in one call is stale the second time.
            place = held.pop((claim.id, claim.token), None)
            if place is None:
                stale.append(claim)
                continue
            applied.append(claim)
            if settlement.kind is Kind.COMPLETE:
                self._completed[place[0], settlement.outcome].append(claim.id)
            else:
                self._end(settlement, *place)
            if brought := endings.brought(settlement):
                self._rows["add_item"] += ((claim.id, item) for item in brought.items)
                self._discovered += brought.discovered
        if applied:
            self._store(applied)
        return Settled(applied, stale)

    def complete(self, claims: Sequence[Claim]) -> bool:
        """Mark the keys done, the short way; whether all were still held."""
        shard = self._shard_of_all(claims)
        if shard is not None:
            self._completed[shard, DONE] += (claim.id for claim in claims)
            self._store(claims)
            return True
        held = running(self._connection, claims)
        applied = []
        for claim in claims:
            if place := held.pop((claim.id, claim.token), None):
                self._completed[place[0], DONE].append(claim.id)
                applied.append(claim)
        if applied:
            self._store(applied)
        return len(applied) == len(claims)

    def _shard_of_all(self, claims: Sequence[Claim]) -> int | None:
        """The shard of *claims* if they came from one call of claim() and all are still held."""
        base = claims[0].token - claims[0].id
        ids = {claim.id for claim in claims if claim.token - claim.id == base}
        if len(ids) < len(claims):
            return None
        asked = {"ids": id_list(ids), "base": base}
        row = self._connection.execute(_SQL["held_together"], asked).fetchone()
        count, first, last = row
        return first if count == len(claims) and first == last else None

    def _end(self, settlement: Settlement, shard: int, attempts: int, deaths: int) -> None:
        if settlement.kind is Kind.RELEASE:
            query = "give_back_suspect" if self._policy.is_suspect(deaths) else "give_back"
            self._released[query].append(settlement.claim.id)
            self._deltas.move(shard, State.RUNNING, State.PENDING)
        elif settlement.permanent or self._policy.is_last(attempts + 1):
            outcome, text = self._ends.count(settlement.outcome)
            self._rows["bury"].append((self._now, outcome, text, settlement.claim.id))
            self._deltas.move(shard, State.RUNNING, State.DEAD)
        else:
            self._retry(settlement, attempts + 1)
            self._deltas.move(shard, State.RUNNING, State.FAILED)

    def _retry(self, settlement: Settlement, attempts: int) -> None:
        wait = settlement.retry_in
        if wait is None:
            wait = self._policy.retry_in(attempts, self._jitter())
        at = self._now + round(min(wait, MAX_WAIT) * 1000)
        error = outcome_text(settlement.outcome)
        self._rows["retry_later"].append((at, attempts, error, settlement.claim.id))

    def _store(self, applied: Sequence[Claim]) -> None:
        for (shard, outcome), keys in self._completed.items():
            self._deltas.move(shard, State.RUNNING, State.DONE, len(keys))
            id_, text = self._ends.count(outcome, len(keys))
            end = {"ids": id_list(keys), "now": self._now, "outcome": id_, "text": text}
            self._connection.execute(_SQL["finish"], end)
        for query, ids in self._released.items():
            self._connection.execute(_SQL[query], {"ids": id_list(ids), "now": self._now})
        for query, rows in self._rows.items():
            self._connection.executemany(_SQL[query], rows)
        self._connection.execute(_SQL["leave_running"], (id_list(claim.id for claim in applied),))
        if self._discovered:
            found = self._discovered
            add_keys(self._connection, found, self._shards, self._deltas, replaces=False)
        self._ends.store()
        self._deltas.store(self._connection)


def _brought_by(settlement: Settlement) -> Brought:
    return Brought(
        [item_text(item, settlement.claim) for item in settlement.items],
        [key_row(key) for key in settlement.discovered],
    )


def _check_wait(retry_in: float | None) -> None:
    if retry_in is not None and not 0 <= retry_in <= MAX_WAIT:
        raise StoreError(
            f"The time until a retry is from 0 to {MAX_WAIT} seconds, not {retry_in!r}."
        )
