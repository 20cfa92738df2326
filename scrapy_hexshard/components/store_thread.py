"""The one thread in which a worker calls its store: with group commit, away from the reactor.

It also renews the leases, so that a blocked reactor keeps them for a while, and at the end gives
back every claim that is still held, one that was in flight included.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred

from scrapy_hexshard.components.event_loop import from_thread
from scrapy_hexshard.components.group_commit import Results, plain_errors, run_group
from scrapy_hexshard.components.leases import Leases
from scrapy_hexshard.components.store_calls import Call, CallQueue, Rank, fire
from scrapy_hexshard.errors import HexShardError
from scrapy_hexshard.store.contract import Claim, OpenShard, OpenWork, Settlement, WorkStore


class Claimed(NamedTuple):
    """What a claim brought, and if that is nothing, what was left at that moment."""

    claims: list[Claim]
    open: OpenWork | None = None
    shards: Sequence[OpenShard] = ()


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
        self._before_completing = before_completing
        self._on_lost = on_lost
        self._on_condemned = on_condemned
        self._condemned = 0  # how many of the store's condemned keys have been told
        self._calls = CallQueue()
        self._leases = Leases(lease_seconds, patience)
        self._closed = False
        self._post = from_thread()
        self.gate_wait_seconds = 0.0

    # From the reactor's thread.

    def turned(self) -> None:
        """The reactor has turned: it is alive, and so is the work it holds."""
        self._leases.turned()

    def call(self, operation: Callable[[WorkStore], Any]) -> Deferred[Any]:
        """The result of *operation*, once it is durable; fails with a HexShardError."""
        return self._submit(Rank.OTHER, operation)

    def claim(self, limit: int, *, look_around: bool = False) -> Deferred[Claimed]:
        """Up to *limit* claims; with none, what is still open, if asked for of all shards."""

        def operation(store: WorkStore) -> Claimed:
            if claims := store.claim(limit, self._leases.seconds):
                return Claimed(claims)
            return Claimed([], store.open_work(), store.open_shards() if look_around else ())

        return self._submit(Rank.CLAIM, operation)

    def settle(self, settlement: Settlement) -> Deferred[bool]:
        """Whether the settlement was applied; False if the claim had been lost."""

        def operation(store: WorkStore) -> bool:
            return not store.settle([settlement]).stale

        return self._submit(Rank.SETTLE, operation, settlement)

    def park(self, claim: Claim) -> Deferred[None]:
        """Note that nothing of *claim* is in flight any more: it waits to be settled."""
        return self._submit(Rank.PARK, lambda store: store.park([claim]))

    def close(self, reason: str) -> Deferred[int]:
        """Release what is held, note why the worker ended and end the thread.

        The number of claims released.
        """

        def operation(store: WorkStore) -> int:
            released = store.settle(map(Settlement.release, self._leases.held())).applied
            store.end(reason)
            return len(released)

        return self._submit(Rank.CLOSE, operation)

    def _submit(
        self,
        rank: Rank,
        operation: Callable[[WorkStore], Any],
        settlement: Settlement | None = None,
    ) -> Deferred[Any]:
        call = Call(rank, operation, Deferred(), settlement)
        self._calls.put(call)
        return call.answer

    # In the thread.

    def run(self) -> None:
        try:
            with plain_errors():
                store = self._open_store()
        except HexShardError as error:
            self._refuse(error)
        else:
            self._serve(store)

    def _refuse(self, error: HexShardError) -> None:
        """Answer every call with *error*: there is no store, and no lease to wake up for."""
        while not self._closed:
            for group in self._calls.next_groups():
                self._answer([(call, error) for call in group])

    def _serve(self, store: WorkStore) -> None:
        while not self._closed:
            for group in self._calls.next_groups(self._leases.due_in()):
                results = run_group(store, group, self._before_completing)
                self._keep_account(results)
                self._tell_condemned(store)
                self.gate_wait_seconds = getattr(store, "gate_wait_seconds", 0.0)
                self._answer(results)
            if not (self._closed or self._leases.due_in()) and (lost := self._leases.renew(store)):
                self._post(self._on_lost, lost)
        store.close()

    def _keep_account(self, results: Results) -> None:
        for call, result in results:
            if isinstance(result, HexShardError):
                continue
            if call.settlement is not None:
                self._leases.drop(call.settlement.claim.token)
            elif call.rank is Rank.CLAIM:
                self._leases.hold(result.claims)

    def _tell_condemned(self, store: WorkStore) -> None:
        if condemned := store.condemned[self._condemned :]:
            self._condemned += len(condemned)
            self._post(self._on_condemned, condemned)

    def _answer(self, results: Results) -> None:
        self._closed = any(call.rank is Rank.CLOSE for call, _ in results)
        # In one go: to wake the event loop is what costs.
        self._post(fire, [(call.answer, result) for call, result in results])
