"""The calls that wait for the store thread, taken in groups that share a commit."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from twisted.internet.defer import Deferred

from scrapy_hexshard.errors import HexShardError
from scrapy_hexshard.store.contract import Settlement, WorkStore

# How long the end of a unit may wait for others to share its commit. Nothing waits for it: the unit
# has made room for another already. A kill repeats at most that much more.
LINGER_SECONDS = 0.1
MAX_GROUP = 500


class Rank(IntEnum):
    """The order of operations within a group: what makes room comes before what takes it."""

    SETTLE = 0
    PARK = 1
    OTHER = 2
    CLAIM = 3
    CLOSE = 4


PATIENT = (Rank.SETTLE, Rank.PARK)  # these may wait for others to share their commit


@dataclass(slots=True)
class Call:
    """An operation on the store, and what waits for its result; a settlement names itself."""

    rank: Rank
    operation: Callable[[WorkStore], Any]
    answer: Deferred[Any]
    settlement: Settlement | None = None


class CallQueue:
    """Filled by the event loop, emptied by the store thread."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self._urgent = threading.Event()  # something that is not patient is waiting

    def put(self, call: Call) -> None:
        """Add *call*, behind those there are."""
        self._calls.put(call)
        if call.rank not in PATIENT:
            self._urgent.set()

    def next_groups(self, timeout: float | None = None) -> list[list[Call]]:
        """What waits, by rank, as soon as there is something; nothing after *timeout* seconds."""
        try:
            calls = [self._calls.get(timeout=timeout)]
        except queue.Empty:
            return []
        if calls[0].rank in PATIENT:
            # Asleep, so that the others that join do not wake this thread one by one: it would
            # wait for a busy reactor each time.
            self._urgent.wait(LINGER_SECONDS)
        # Before the queue is emptied: what comes after is either in this group or urgent again.
        self._urgent.clear()
        with contextlib.suppress(queue.Empty):
            while len(calls) < MAX_GROUP:
                calls.append(self._calls.get_nowait())
        calls.sort(key=lambda call: call.rank)
        # The last call releases what the calls before it have claimed: a group of its own.
        closing = [call for call in calls if call.rank is Rank.CLOSE]
        return [group for group in (calls[: len(calls) - len(closing)], closing) if group]


def fire(answers: Iterable[tuple[Deferred[Any], Any]]) -> None:
    """Give each result, or HexShardError, to whoever waits for it; called by the event loop."""
    for answer, result in answers:
        if answer.called:
            continue  # cancelled by its caller, who no longer wants to know
        if isinstance(result, HexShardError):
            answer.errback(result)
        else:
            answer.callback(result)
