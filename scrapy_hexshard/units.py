"""A worker's ledger of open units: it counts requests and items, and says when a unit ends and how.

Pure bookkeeping: no Scrapy, no store, no clock of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Set
from typing import NamedTuple

DONE = "done"
EMPTY = "empty"
NOT_SCHEDULED = "not scheduled"
DEADLINE = "deadline"


class Verdict(NamedTuple):
    """How an ended unit is to be settled; *failed* and *interrupted* exclude each other."""

    outcome: str
    failed: bool = False
    permanent: bool = False
    interrupted: bool = False  # the spider asked to stop in the middle of it


class Unit:
    """One claimed key with everything that descends from it.

    It ends once no request of it is open and nobody holds it, and then never changes again.
    """

    __slots__ = (
        "_failure",
        "_holds",
        "_on_end",
        "_open",
        "ended",
        "filtered",
        "interrupted",
        "items",
        "key",
        "moved_at",
        "requests",
        "token",
        "yielded",
    )

    def __init__(self, key: str, token: int, on_end: Callable[[Unit], None]) -> None:
        self.key = key
        self.token = token
        self.ended = False
        self.interrupted = False
        self.requests = 0  # accepted by the scheduler, retries and redirects included
        self.filtered = 0  # refused by the scheduler's duplicate filter
        self.yielded = 0  # items, whatever the pipelines did with them
        self.items: list[str] = []  # what is to be stored with the completion
        self.moved_at: float | None = None  # None: moved since the ledger last looked
        self._open = 0
        self._holds = 0
        self._failure: Verdict | None = None
        self._on_end = on_end

    def begin_request(self) -> None:
        """A request of the unit is on its way."""
        self._open += 1
        self.requests += 1
        self.moved_at = None

    def end_request(self) -> None:
        """A request has left the engine, and everything it yielded with it."""
        self._open -= 1
        self.moved_at = None
        self._end_if_idle()

    def hold(self) -> None:
        """Keep the unit open while its first request is handed over."""
        self._holds += 1

    def release_hold(self) -> None:
        """The hand-over is over; a unit without a request ends here."""
        self._holds -= 1
        self._end_if_idle()

    def moved(self) -> None:
        """Something of the unit made progress."""
        self.moved_at = None

    def fail(self, outcome: str, *, permanent: bool = False) -> None:
        """The unit failed; the first failure is the cause, later ones follow from it."""
        if self._failure is None:
            self._failure = Verdict(outcome, failed=True, permanent=permanent)

    def verdict(self, *, empty_fails: bool = False) -> Verdict:
        """How the unit is to be settled."""
        if self.interrupted:
            return Verdict("interrupted", interrupted=True)
        if self._failure is not None:
            return self._failure
        if not self.requests:
            return Verdict(NOT_SCHEDULED, failed=True)
        if not self.yielded:
            return Verdict(EMPTY, failed=empty_fails)
        return Verdict(DONE)

    def _end_if_idle(self) -> None:
        if not (self._open or self._holds or self.ended):
            self.end()

    def end(self) -> None:
        """End the unit now, whatever of it is still open."""
        self.ended = True
        self._on_end(self)


class Ledger:
    """The open units of a worker by token."""

    def __init__(self, on_end: Callable[[Unit], None]) -> None:
        self._units: dict[int, Unit] = {}
        self._on_end = on_end

    def __len__(self) -> int:
        return len(self._units)

    def open(self, key: str, token: int) -> Unit:
        """A new unit for a claim."""
        unit = self._units[token] = Unit(key, token, self._ended)
        return unit

    def tokens(self) -> Set[int]:
        """Those of the open units."""
        return self._units.keys()

    def get(self, token: int | None) -> Unit | None:
        """The open unit of *token*; None once it has ended."""
        return None if token is None else self._units.get(token)

    def forget(self, token: int) -> Unit | None:
        """Drop a unit whose claim was lost: it is not settled, and what it still does is late."""
        unit = self._units.pop(token, None)
        if unit is not None:
            unit.ended = True
        return unit

    def end_overdue(self, active: Collection[int], now: float, timeout: float) -> list[Unit]:
        """End with ``deadline`` the units that made no progress for *timeout* seconds.

        *active* has the tokens of units with something on the wire, in a callback or in a
        pipeline: time spent waiting for a turn is no lack of progress.
        """
        overdue = []
        for unit in self._units.values():
            if unit.moved_at is None or unit.token not in active:
                unit.moved_at = now
            elif now - unit.moved_at > timeout:
                overdue.append(unit)
        for unit in overdue:
            unit.fail(DEADLINE)
            unit.end()
        return overdue

    def _ended(self, unit: Unit) -> None:
        if self._units.pop(unit.token, None) is not None:
            self._on_end(unit)
