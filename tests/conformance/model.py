"""The store contract once more, as plain dictionaries: what the real stores are compared with."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Protocol

from scrapy_hexshard import RetryPolicy, Work
from scrapy_hexshard.store.contract import Claim, Kind

OPEN = ("pending", "failed")


class Holder(Protocol):
    """A worker, as far as it matters here."""

    policy: RetryPolicy
    told_to_stop: bool
    condemned: list[str]


@dataclass
class Entry:
    """A key; *at* is when its lease ends, when it is tried again, or since when it is a suspect."""

    order: int
    priority: int
    payload: str | None
    state: str = "pending"
    attempts: int = 0
    deaths: int = 0
    lone_deaths: int = 0
    suspect: bool = False  # of a pending key; it is claimed alone
    lone: bool = False  # of a running key; it was claimed alone
    parked: bool = False  # of a running key; nothing of it is in flight
    holder: Holder | None = None
    token: int | None = None
    at: float = 0.0


class Model:
    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.outcomes: Counter[str] = Counter()
        self.items: list[str] = []

    def enqueue(self, works: list[Work]) -> int:
        known = len(self.entries)
        for work in works:
            entry = self.entries.get(work.key)
            if entry is None:
                self.entries[work.key] = Entry(len(self.entries), work.priority, work.payload)
            elif entry.state in OPEN:
                entry.priority = max(entry.priority, work.priority)
                entry.payload = entry.payload if work.payload is None else work.payload
        return len(self.entries) - known

    def discover(self, works: list[Work]) -> None:
        for work in works:
            known = work.key in self.entries
            self.enqueue([replace(work, payload=None) if known else work])

    def take_back(self, worker: Holder, dead_workers: list[Holder], now: float) -> None:
        for key, entry in self.entries.items():
            if entry.state == "running" and entry.holder in dead_workers:
                self._lose(worker, key, now)

    def claim(self, worker: Holder, limit: int, lease: float, now: float) -> list[str]:
        in_flight = self._in_flight(worker)
        if any(entry.lone for entry in in_flight):
            return []
        for entry in self.entries.values():
            if entry.state == "failed" and entry.at <= now:
                self._put_back(worker, entry, now)
        for key, entry in self.entries.items():
            if self._is_lost(entry, worker, now) and self._is_set_apart(worker, entry):
                self._lose(worker, key, now)
        ready = [key for key, entry in self.entries.items() if self._is_ready(entry, worker, now)]
        chosen = sorted(ready, key=self._place)[:limit]
        suspects = [key for key, entry in self.entries.items() if entry.suspect]
        if not chosen and not in_flight and suspects:
            chosen = [min(suspects, key=lambda key: (self.entries[key].at, *self._place(key)))]
        for key in chosen:
            entry = self.entries[key]
            if entry.state == "running":
                self._charge(entry)
            entry.lone, entry.suspect = entry.suspect, False
            entry.state, entry.holder, entry.at = "running", worker, now + lease
            entry.parked = False
        return chosen

    def park(self, claim: Claim) -> None:
        if self.held(claim, claim.token):
            self.entries[claim].parked, self.entries[claim].lone = True, False

    def held(self, key: str, token: int) -> bool:
        entry = self.entries[key]
        return entry.state == "running" and entry.token == token

    def settle(self, worker: Holder, settlement, now: float) -> bool:
        claim = settlement.claim
        if not self.held(claim, claim.token):
            return False
        entry = self.entries[claim]
        if settlement.kind is Kind.RELEASE:
            self._put_back(worker, entry, now)
            return True
        entry.attempts += 1
        if settlement.kind is Kind.COMPLETE:
            entry.state = "done"
            self.items += settlement.items
        elif settlement.permanent or worker.policy.is_last(entry.attempts):
            entry.state = "dead"
        else:
            entry.state, entry.at = "failed", now + (settlement.retry_in or 0)
            return True
        self.outcomes[settlement.outcome] += 1
        return True

    def counts(self) -> dict[str, int]:
        found = Counter(entry.state for entry in self.entries.values())
        return {state: found[state] for state in ("pending", "running", "done", "failed", "dead")}

    def next_in(self, worker: Holder, now: float) -> float | None:
        in_flight = self._in_flight(worker)
        waits = []
        for entry in self.entries.values():
            if entry.state == "pending":
                waits.append(1.0 if entry.suspect and in_flight else 0.0)
            elif entry.state in ("running", "failed"):
                own = entry.state == "running" and entry.holder is worker
                waits.append(1.0 if own and entry.at <= now else max(0.0, entry.at - now))
        if any(entry.lone for entry in in_flight):
            waits = [max(1.0, wait) for wait in waits]
        return min(waits, default=None)

    def _in_flight(self, worker: Holder) -> list[Entry]:
        held = (each for each in self.entries.values() if each.state == "running")
        return [entry for entry in held if entry.holder is worker and not entry.parked]

    def _place(self, key: str) -> tuple[int, int]:
        return -self.entries[key].priority, self.entries[key].order

    def _is_ready(self, entry: Entry, worker: Holder, now: float) -> bool:
        pending = entry.state == "pending" and not entry.suspect
        return pending or self._is_lost(entry, worker, now)

    def _is_lost(self, entry: Entry, worker: Holder, now: float) -> bool:
        return entry.state == "running" and entry.at <= now and entry.holder is not worker

    # Deaths.

    def _is_set_apart(self, worker: Holder, entry: Entry) -> bool:
        after = replace(entry)
        died_alone = self._charge(after)
        return worker.policy.is_suspect(after.deaths) or (
            died_alone and worker.policy.is_condemned(after.lone_deaths)
        )

    def _charge(self, entry: Entry) -> bool:
        """Count the death of the holder of *entry*, if it is one; whether it died alone with it."""
        if entry.holder.told_to_stop or entry.parked:
            return False
        entry.deaths += 1
        entry.lone_deaths += entry.lone
        return entry.lone

    def _lose(self, worker: Holder, key: str, now: float) -> None:
        entry = self.entries[key]
        died_alone = self._charge(entry)
        if died_alone and worker.policy.is_condemned(entry.lone_deaths):
            entry.state = "dead"
            self.outcomes["worker died"] += 1
            worker.condemned.append(key)
        else:
            self._put_back(worker, entry, now)

    def _put_back(self, worker: Holder, entry: Entry, now: float) -> None:
        entry.state, entry.lone, entry.at = "pending", False, now
        entry.suspect = worker.policy.is_suspect(entry.deaths)
