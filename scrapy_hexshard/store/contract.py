"""The store contract: the page that is the specification of every store.

A store keeps the keys of one crawl, leases them to workers, and records how each one ended. Its
calls block; give it batches. A key is in one of five states:

``pending`` -> ``running`` -> ``done``, or ``failed`` (waiting for its retry time) and ``running``
again, or ``dead`` once its attempts are used up or the failure is permanent. ``running`` goes back
to ``pending`` when a claim is released or its lease was lost.

A key under which workers die is a *suspect* after a while, and worked on alone; see claim().
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, NamedTuple, Self

from scrapy_hexshard.config import DEFAULT_LEASE_SECONDS
from scrapy_hexshard.errors import PayloadError
from scrapy_hexshard.keys import shown

MAX_PAYLOAD_BYTES = 1_000_000
DONE = "done"
WORKER_DIED = "worker died"


class State(StrEnum):
    """Where a key is; see the module's text for the ways between them."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Work:
    """A key to enqueue, with a payload (JSON text, at most 1 MB) and a priority (higher first)."""

    key: str
    payload: str | None = None
    priority: int = 0

    def __post_init__(self) -> None:
        if self.payload is not None:
            check_payload(self.payload, self.key)
        if not isinstance(self.priority, int) or not -(2**31) <= self.priority < 2**31:
            raise PayloadError(
                f"The priority of {shown(self.key)} is a whole number of 32 bits, not "
                f"{self.priority!r}."
            )


class Claim(str):
    """A leased key: text equal to the key, with what a worker needs to work on it and settle it.

    It pickles with its attributes, so another process may settle it.
    """

    id: int
    token: int
    attempt: int  # 1 for the first
    payload: str | None
    priority: int
    lone: bool  # whether it is a suspect, and all that its worker holds

    def __new__(
        cls,
        key: str,
        id: int,  # noqa: A002
        token: int,
        attempt: int = 1,
        payload: str | None = None,
        priority: int = 0,
        lone: bool = False,
    ) -> Self:
        claim = str.__new__(cls, key)
        claim.id, claim.token, claim.attempt = id, token, attempt
        claim.payload, claim.priority, claim.lone = payload, priority, lone
        return claim

    def __getnewargs__(self) -> tuple[Any, ...]:
        lease = self.id, self.token, self.attempt
        return str(self), *lease, self.payload, self.priority, self.lone


class Kind(StrEnum):
    """How a claim is settled."""

    COMPLETE = "complete"
    FAIL = "fail"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Settlement:
    """How one claim ends. Build it with complete(), fail() or release().

    *items* (JSON texts) and *discovered* keys are stored together with a completion only. Of a
    discovered key that is known already nothing changes but the priority, where it is higher.
    """

    claim: Claim
    kind: Kind
    outcome: str = DONE
    retry_in: float | None = None  # seconds; None leaves it to the retry policy
    permanent: bool = False
    items: Sequence[str] = ()
    discovered: Sequence[str | Work] = ()

    def __post_init__(self) -> None:
        check_claim(self.claim)

    @classmethod
    def complete(
        cls,
        claim: Claim,
        outcome: str = DONE,
        items: Sequence[str] = (),
        discovered: Sequence[str | Work] = (),
    ) -> Self:
        """The key is done; its items and the keys it discovered are stored in the same step."""
        return cls(claim, Kind.COMPLETE, outcome, items=items, discovered=discovered)

    @classmethod
    def fail(
        cls, claim: Claim, outcome: str, retry_in: float | None = None, permanent: bool = False
    ) -> Self:
        """The attempt failed: retried later, or dead when it was the last or is *permanent*."""
        return cls(claim, Kind.FAIL, outcome, retry_in, permanent)

    @classmethod
    def release(cls, claim: Claim) -> Self:
        """The key goes back to its place as if it had never been claimed."""
        return cls(claim, Kind.RELEASE)


class Settled(NamedTuple):
    """What settle() did: the claims it *applied* and those that were *stale*."""

    applied: list[Claim]
    stale: list[Claim]


class OpenWork(NamedTuple):
    """What of a shard could still be claimed, by this worker or another."""

    pending: int
    running: int
    failed: int
    # Seconds until this worker may get a key; None if none is left. It is no less than a second
    # where only what the worker holds itself keeps the rest from it.
    next_in: float | None
    parked: int  # of those running

    def __bool__(self) -> bool:
        return self.next_in is not None


class ShardCounts(NamedTuple):
    """The keys of one shard by state."""

    shard: int
    counts: Mapping[State, int]


class OpenShard(NamedTuple):
    """A shard with keys that have not ended."""

    shard: int
    keys: int
    seen: float | None  # seconds since a worker that did not finish it was last seen; None: never


class WorkStore(ABC):
    """One crawl's keys, as seen by one worker of one shard. Usable from several threads.

    Every write to a claim names its id and token: a claim that was lost meanwhile is stale and
    nothing changes. A key another worker never claimed again can still be settled after its lease.
    Once a call returned, its effect survives a kill and, by default, a power cut; a claim or a
    renewal need not survive a power cut, after which nobody is left to work on it.

    Methods raise StoreError when the store cannot be used.
    """

    @property
    def durable(self) -> bool:
        """Whether what a call stored survives a power cut, too, and not only a kill."""
        return True

    @abstractmethod
    def enqueue(self, keys: Iterable[str | Work]) -> int:
        """Store the keys, of every shard, that are not known yet; return how many were new.

        Any iterable is streamed. A key known already is not added again; while it is pending or
        failed a payload given replaces the stored one and the higher priority wins. Raises
        InvalidKeyError or PayloadError at the first bad key: earlier batches stay, the batch with
        the bad key changes nothing.
        """

    @abstractmethod
    def claim(self, limit: int = 100, lease_seconds: float = DEFAULT_LEASE_SECONDS) -> list[Claim]:
        """Lease up to *limit* keys of this shard, highest priority first, then first in.

        An empty list means nothing is ready now; see open_work(). Keys whose lease another worker
        lost come back here. The first call takes back at once what a dead predecessor held.

        Either is a death of the key, unless that worker had been told to stop. A release, a failure
        and a completion are none. With ``max_deaths`` of the retry policy a key is a suspect:
        claimed only when nothing else of the shard is ready, by a worker that holds nothing but
        parked keys, alone whatever the *limit*, and the one first that has waited longest; one that
        comes back waits behind the others. As long as a worker holds a suspect it gets nothing
        else. A death meanwhile is a lone one, too, and ``max_lone_deaths`` of those make the key
        dead with the outcome ``worker died``.
        """

    @property
    @abstractmethod
    def condemned(self) -> Sequence[str]:
        """The keys that claim() has made dead as ``worker died`` since the store was opened."""

    @abstractmethod
    def renew(
        self, claims: Iterable[Claim], lease_seconds: float = DEFAULT_LEASE_SECONDS
    ) -> list[Claim]:
        """Extend the leases; return the claims that are still held."""

    @abstractmethod
    def park(self, claims: Iterable[Claim]) -> None:
        """Note that nothing of these keys is in flight any more: they only wait to be settled.

        A kill is then no death of theirs, and as far as suspects are concerned the worker does not
        hold them. Stale claims are passed over.
        """

    @abstractmethod
    def settle(self, settlements: Iterable[Settlement]) -> Settled:
        """End claims, each with its outcome, items and discovered keys, all in one transaction."""

    @abstractmethod
    def group(self) -> AbstractContextManager[None]:
        """Calls of this thread inside it share one commit; one that raises undoes only itself.

        Nothing inside is durable before the group has ended without an error.
        """

    def complete(self, *claims: Claim) -> bool:
        """Mark keys done; False if any claim was stale."""
        return not self.settle([Settlement.complete(claim) for claim in claims]).stale

    def fail(
        self,
        claim: Claim,
        error: str,
        retry_in: float | None = None,
        permanent: bool = False,
    ) -> bool:
        """Record a failed attempt; False if the claim was stale. *retry_in* is in seconds."""
        return not self.settle([Settlement.fail(claim, error, retry_in, permanent)]).stale

    def release(self, *claims: Claim) -> bool:
        """Give claims back as if never claimed; False if any was stale."""
        return not self.settle([Settlement.release(claim) for claim in claims]).stale

    @abstractmethod
    def counts(self, *, all_shards: bool = False) -> Mapping[State, int]:
        """Keys by state, of this shard or of the whole crawl. Its cost does not grow with them."""

    @abstractmethod
    def shard_counts(self) -> list[ShardCounts]:
        """Keys by state of each shard, in order."""

    @abstractmethod
    def outcomes(self) -> Mapping[str, int]:
        """How many keys ended, done or dead, with each outcome."""

    @abstractmethod
    def open_work(self) -> OpenWork:
        """What of this shard may still become claimable, and when; false when nothing may."""

    @abstractmethod
    def open_shards(self) -> list[OpenShard]:
        """Every shard whose keys have not all ended, in order: their pages may bring more keys."""

    @abstractmethod
    def item_lines(self) -> Iterator[str]:
        """The JSON text of each stored item, in the order of their completion."""

    def items(self) -> Iterator[Any]:
        """Each stored item, decoded, in the order of their completion."""
        return map(json.loads, self.item_lines())

    @abstractmethod
    def bind_spider(self, name: str) -> None:
        """Reserve the store for the spider *name*; raises StoreMismatchError if another has it."""

    @abstractmethod
    def companions(self, within: float) -> int:
        """How many other workers of this shard were seen within so many seconds, and may be alive.

        They share the shard's keys, and none is claimed twice; but rarely are they wanted.
        """

    @abstractmethod
    def register(self) -> None:
        """Note that this worker works its shard. claim() does it by itself."""

    @abstractmethod
    def heartbeat(self) -> None:
        """Note that this worker is alive."""

    @abstractmethod
    def stopping(self) -> None:
        """Note that this worker was told to stop: what it still holds does not count as deaths."""

    @abstractmethod
    def end(self, reason: str) -> None:
        """Note that this worker ended, and why; only ``finished`` means the shard is finished."""

    @abstractmethod
    def close(self) -> None:
        """Close the store. Claims stay leased; release them first."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def check_claim(claim: object) -> None:
    """Raise TypeError unless *claim* is what claim() returned."""
    if not isinstance(claim, Claim):
        raise TypeError(
            f"Only a Claim can be settled, not {type(claim).__name__}: pass the keys that claim() "
            "returned."
        )


def check_payload(payload: object, key: str) -> None:
    """Raise PayloadError, naming *key*, unless *payload* is JSON text of at most 1 MB."""
    if not isinstance(payload, str):
        raise PayloadError(
            f"The payload of {shown(key)} is JSON text, not {type(payload).__name__}: use "
            "json.dumps."
        )
    try:
        size = len(payload.encode())
        _DECODER.decode(payload)
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"The payload of {shown(key)} is not JSON: {error}.") from None
    if size > MAX_PAYLOAD_BYTES:
        raise PayloadError(
            f"The payload of {shown(key)} is {size} bytes; a store takes {MAX_PAYLOAD_BYTES} at "
            "most."
        )


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# Made once: json.loads() would make one for each payload, and lists have millions.
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
