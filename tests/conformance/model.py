"""The store contract once more, as plain dictionaries: what the real stores are compared with."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from scrapy_hexshard import RetryPolicy, Work
from scrapy_hexshard.store.contract import Kind

OPEN = ("pending", "failed")


@dataclass
class Entry:
    """A key; *at* is when its lease ends, or when it is tried again."""

    order: int
    priority: int
    payload: str | None
    state: str = "pending"
    attempts: int = 0
    holder: object = None
    token: int | None = None
    at: float = 0.0


class Model:
    def __init__(self, policy: RetryPolicy) -> None:
        self.policy = policy
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

    def take_back(self, dead_workers: list[object]) -> None:
        for entry in self.entries.values():
            if entry.state == "running" and entry.holder in dead_workers:
                entry.state = "pending"

    def claim(self, worker: object, limit: int, lease: float, now: float) -> list[str]:
        for entry in self.entries.values():
            if entry.state == "failed" and entry.at <= now:
                entry.state = "pending"
        ready = [key for key, entry in self.entries.items() if self._is_ready(entry, worker, now)]
        place = {key: (-self.entries[key].priority, self.entries[key].order) for key in ready}
        chosen = sorted(ready, key=place.__getitem__)[:limit]
        for key in chosen:
            entry = self.entries[key]
            entry.state, entry.holder, entry.at = "running", worker, now + lease
        return chosen

    def held(self, key: str, token: int) -> bool:
        entry = self.entries[key]
        return entry.state == "running" and entry.token == token

    def settle(self, settlement, now: float) -> bool:
        claim = settlement.claim
        if not self.held(claim, claim.token):
            return False
        entry = self.entries[claim]
        if settlement.kind is Kind.RELEASE:
            entry.state = "pending"
            return True
        entry.attempts += 1
        if settlement.kind is Kind.COMPLETE:
            entry.state = "done"
            self.items += settlement.items
        elif settlement.permanent or self.policy.is_last(entry.attempts):
            entry.state = "dead"
        else:
            entry.state, entry.at = "failed", now + (settlement.retry_in or 0)
            return True
        self.outcomes[settlement.outcome] += 1
        return True

    def counts(self) -> dict[str, int]:
        found = Counter(entry.state for entry in self.entries.values())
        return {state: found[state] for state in ("pending", "running", "done", "failed", "dead")}

    def next_in(self, worker: object, now: float) -> float | None:
        waits = [0.0 for entry in self.entries.values() if entry.state == "pending"]
        for entry in self.entries.values():
            if entry.state in ("running", "failed"):
                own = entry.state == "running" and entry.holder is worker
                waits.append(1.0 if own and entry.at <= now else max(0.0, entry.at - now))
        return min(waits, default=None)

    def _is_ready(self, entry: Entry, worker: object, now: float) -> bool:
        lost = entry.state == "running" and entry.at <= now and entry.holder is not worker
        return entry.state == "pending" or lost
