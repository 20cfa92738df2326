"""The one thread in which a worker calls its store: with group commit, away from the reactor.

It also renews the leases, so that a blocked reactor keeps them for a while, and at the end gives
back every claim that is still held, one that was in flight included.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from scrapy.utils.asyncio import is_asyncio_available
from twisted.internet.defer import Deferred

from scrapy_hexshard.errors import HexShardError, StoreError
from scrapy_hexshard.store.contract import (
    Claim,
    Kind,
    OpenShard,
    OpenWork,
    Settled,
    Settlement,
    WorkStore,
)

logger = logging.getLogger(__name__)

# How long the end of a unit may wait for others to share its commit. Nothing waits for it: the unit
# has made room for another already. A kill repeats at most that much more.
LINGER_SECONDS = 0.1
MAX_GROUP = 500


class Rank(IntEnum):
    """The order of operations within a group: a late renewal must not meet a claim first."""

    SETTLE = 0
    PARK = 1
    OTHER = 2
    CLAIM = 3
    CLOSE = 4


# These may wait for others to share their commit.
PATIENT = (Rank.SETTLE, Rank.PARK)


class Claimed(NamedTuple):
    """What a claim brought, and if that is nothing, what was left at that moment."""

    claims: list[Claim]
    open: OpenWork | None = None
    shards: Sequence[OpenShard] = ()


@dataclass(slots=True)
class _Call:
    rank: Rank
    operation: Callable[[WorkStore], Any]
    answer: Deferred[Any]
    settlement: Settlement | None = None


class StoreThread(threading.Thread):
    """Runs store operations in order of their rank and answers each by a Deferred, after COMMIT.

    *lease_seconds* is the length of leases; *patience* is how long, in seconds, leases are renewed
    for a reactor that does not turn. *on_lost* is called with the tokens of claims found lost,
    *on_condemned* with the keys that a claim gave up, before that claim is answered.
    *before_completing* is called in the thread before keys are completed, and told whether that
    survives a power cut; if it raises a HexShardError, they are not.
    """

    def __init__(
        self,
        open_store: Callable[[], WorkStore],
        *,
        lease_seconds: float,
        patience: float,
        on_lost: Callable[[list[int]], None],
        on_condemned: Callable[[Sequence[str]], None],
        before_completing: Callable[[bool], None],
    ) -> None:
        super().__init__(name="hexshard-store", daemon=True)
        self._open_store = open_store
        self._lease_seconds = lease_seconds
        self._patience = patience
        self._on_lost = on_lost
        self._before_completing = before_completing
        self._on_condemned = on_condemned
        self._condemned = 0  # how many of the store's condemned keys have been told
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._urgent = threading.Event()  # something that is not patient is waiting
        self._held: dict[int, Claim] = {}
        self._error: HexShardError | None = None
        self._closed = False
        self._post = _poster()
        self._renew_at = time.monotonic() + lease_seconds / 3
        self._turned_at = time.monotonic()
        self.gate_wait_seconds = 0.0

    # From the reactor's thread.

    def turned(self) -> None:
        """The reactor has turned: it is alive, and so is the work it holds."""
        self._turned_at = time.monotonic()

    def call(self, operation: Callable[[WorkStore], Any], rank: Rank = Rank.OTHER) -> Deferred[Any]:
        """The result of *operation*, once it is durable; fails with a HexShardError."""
        return self._submit(_Call(rank, operation, Deferred()))

    def claim(self, limit: int, *, look_around: bool = False) -> Deferred[Claimed]:
        """Up to *limit* claims; with none, what is still open, if asked for of all shards."""

        def operation(store: WorkStore) -> Claimed:
            if claims := store.claim(limit, self._lease_seconds):
                return Claimed(claims)
            return Claimed([], store.open_work(), store.open_shards() if look_around else ())

        return self.call(operation, Rank.CLAIM)

    def settle(self, settlement: Settlement) -> Deferred[bool]:
        """Whether the settlement was applied; False if the claim had been lost."""

        def operation(store: WorkStore) -> bool:
            return not store.settle([settlement]).stale

        return self._submit(_Call(Rank.SETTLE, operation, Deferred(), settlement))

    def park(self, claim: Claim) -> Deferred[None]:
        """Note that nothing of *claim* is in flight any more: it waits to be settled."""
        return self.call(lambda store: store.park([claim]), Rank.PARK)

    def close(self, reason: str) -> Deferred[int]:
        """Release what is held, note why the worker ended and end the thread.

        The number of claims released.
        """

        def operation(store: WorkStore) -> int:
            released = store.settle(map(Settlement.release, self._held.values())).applied
            store.end(reason)
            return len(released)

        return self.call(operation, Rank.CLOSE)

    def _submit(self, call: _Call) -> Deferred[Any]:
        self._calls.put(call)
        if call.rank not in PATIENT:
            self._urgent.set()
        return call.answer

    # In the thread.

    def run(self) -> None:
        store = self._opened()
        while not self._closed:
            group = self._next_group()
            if store is None:
                self._answer([(call, self._error) for call in group])
                self._closed = any(call.rank is Rank.CLOSE for call in group)
                continue
            # The last call releases what the calls before it have claimed: a group of its own.
            closing = [call for call in group if call.rank is Rank.CLOSE]
            for part in (group[: len(group) - len(closing)], closing):
                if part:
                    self._run_group(store, part)
            if not self._closed and time.monotonic() >= self._renew_at:
                self._renew(store)
        if store is not None:
            store.close()

    def _opened(self) -> WorkStore | None:
        try:
            with _plain_errors():
                return self._open_store()
        except HexShardError as error:
            self._error = error
        return None

    def _next_group(self) -> list[_Call]:
        try:
            group = [self._calls.get(timeout=max(0.0, self._renew_at - time.monotonic()))]
        except queue.Empty:
            return []
        if group[0].rank in PATIENT:
            # Asleep, so that the others that join do not wake this thread one by one: it would
            # wait for a busy reactor each time.
            self._urgent.wait(LINGER_SECONDS)
        # Before the queue is emptied: what comes after is either in this group or urgent again.
        self._urgent.clear()
        with contextlib.suppress(queue.Empty):
            while len(group) < MAX_GROUP:
                group.append(self._calls.get_nowait())
        return sorted(group, key=lambda call: call.rank)

    def _run_group(self, store: WorkStore, group: list[_Call]) -> None:
        results: list[tuple[_Call, Any]] = []
        refused: list[tuple[_Call, Any]] = []
        if error := self._not_to_complete(store, group):
            refused = [(call, error) for call in group if call.settlement is not None]
            group = [call for call in group if call.settlement is None]
        try:
            with _plain_errors(), store.group():
                results += self._settle_together(store, group)
                results += [
                    (call, self._run(store, call)) for call in group if call.settlement is None
                ]
        except HexShardError as failure:
            results = [(call, failure) for call in group]
        # First: why a key is not completed comes before what follows from it.
        results = refused + results
        self._closed = any(call.rank is Rank.CLOSE for call in group)
        self._keep_account(results)
        self._tell_condemned(store)
        self.gate_wait_seconds = getattr(store, "gate_wait_seconds", 0.0)
        self._answer(results)

    def _not_to_complete(self, store: WorkStore, group: list[_Call]) -> HexShardError | None:
        """Why the keys of *group* cannot be completed now, if so."""
        settlements = [call.settlement for call in group if call.settlement is not None]
        if not any(settlement.kind is Kind.COMPLETE for settlement in settlements):
            return None
        try:
            with _plain_errors():
                # Outside the transaction, for which other workers would wait.
                self._before_completing(store.durable)
        except HexShardError as error:
            return error
        return None

    def _settle_together(self, store: WorkStore, group: list[_Call]) -> Iterable[tuple[_Call, Any]]:
        calls = [call for call in group if call.settlement is not None]
        try:
            with _plain_errors():
                settled = store.settle([call.settlement for call in calls if call.settlement])
        except HexShardError:
            # One of them cannot be stored: the others still can.
            return [(call, self._run(store, call)) for call in calls]
        return [(call, _was_applied(call, settled)) for call in calls]

    @staticmethod
    def _run(store: WorkStore, call: _Call) -> Any:
        try:
            with _plain_errors():
                return call.operation(store)
        except HexShardError as error:
            return error

    def _keep_account(self, results: Iterable[tuple[_Call, Any]]) -> None:
        for call, result in results:
            if isinstance(result, HexShardError):
                continue
            if call.settlement is not None:
                self._held.pop(call.settlement.claim.token, None)
            elif call.rank is Rank.CLAIM:
                self._held.update((claim.token, claim) for claim in result.claims)

    def _tell_condemned(self, store: WorkStore) -> None:
        if condemned := store.condemned[self._condemned :]:
            self._condemned += len(condemned)
            self._post(self._on_condemned, condemned)

    def _renew(self, store: WorkStore) -> None:
        self._renew_at = time.monotonic() + self._lease_seconds / 3
        if time.monotonic() - self._turned_at > self._patience:
            return
        try:
            with _plain_errors(), store.group():
                kept = store.renew(list(self._held.values()), self._lease_seconds)
                store.heartbeat()
        except HexShardError as error:
            logger.warning("The leases could not be renewed, trying again: %s", error)
            return
        lost = self._held.keys() - {claim.token for claim in kept}
        for token in lost:
            del self._held[token]
        if lost:
            self._post(self._on_lost, sorted(lost))

    def _answer(self, results: Iterable[tuple[_Call, Any]]) -> None:
        # In one go: to wake the event loop is what costs.
        self._post(_fire, [(call.answer, result) for call, result in results])


def _was_applied(call: _Call, settled: Settled) -> bool:
    assert call.settlement is not None
    token = call.settlement.claim.token
    return all(claim.token != token for claim in settled.stale)


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """Let the thread outlive what no store should raise: nobody would get an answer any more."""
    try:
        yield
    except HexShardError:
        raise
    except Exception as error:
        logger.debug("A store operation failed", exc_info=True)
        raise StoreError(
            f"A store operation failed with {type(error).__name__}: {error}. That should not be: "
            "the file is damaged, or it is a bug; the log at level DEBUG has the traceback."
        ) from None


def _fire(answers: Iterable[tuple[Deferred[Any], Any]]) -> None:
    for answer, result in answers:
        if answer.called:
            continue  # cancelled by its caller, who no longer wants to know
        if isinstance(result, HexShardError):
            answer.errback(result)
        else:
            answer.callback(result)


def _poster() -> Callable[..., object]:
    """How a thread hands a call to the event loop, under any reactor or none."""
    if is_asyncio_available():
        import asyncio  # noqa: PLC0415

        loop = asyncio.get_running_loop()

        def post(function: Callable[..., object], *args: Any) -> None:
            # After a forced stop nobody is left to hear the answer.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(function, *args)

        return post
    from twisted.internet import reactor  # noqa: PLC0415

    return reactor.callFromThread  # type: ignore[no-any-return]
