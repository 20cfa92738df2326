"""Processes that claim and complete keys side by side, each as fast as it can."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from plain_store import PlainStore

from scrapy_hexshard import ShardSpec, open_store

LEASE_SECONDS = 600.0
KEY_BYTES = 77
LOAD_AT_ONCE = 50_000
_spawning = multiprocessing.get_context("spawn")

# Opens a store; with it goes a worker to another process, so it must pickle.
Opener = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one process did."""

    keys: int
    seconds: float
    worst_claim: float  # seconds
    errors: tuple[str, ...]
    ran_out: bool


def ours(path: Path, shard: int, shards: int, synchronous: str = "FULL") -> Opener:
    """Opens this package's store."""
    return partial(
        open_store, f"sqlite:///{path}?synchronous={synchronous}", ShardSpec(shard, shards)
    )


def plain(path: Path, shard: int, shards: int, synchronous: str = "FULL") -> Opener:
    """Opens the plain store."""
    return partial(PlainStore, path, shard, shards, synchronous)


def plain_in_no_order(path: Path, shard: int, shards: int) -> Opener:
    """Opens the plain store, which then claims any keys, not the first."""
    return partial(PlainStore, path, shard, shards, "FULL", in_order=False)


def product_urls(number: int, *, plain_ascii: bool = True) -> Iterator[str]:
    """So many different URLs of 77 bytes in their canonical form.

    If not *plain_ascii*, the host is in upper case, which takes every key the long way.
    """
    scheme = "https://" if plain_ascii else "HTTPS://"
    for n in range(number):
        scrambled = n * 2_654_435_761 % 2**32
        shop = f"{scheme}shop-{n % 9973:04}.example.com/department-{n % 97:02}"
        yield f"{shop}/{scrambled:08x}/item/{n:014}.html"


def fill(store: Any, keys: Iterator[str]) -> None:
    """Enqueue *keys* and close the store."""
    while some := list(islice(keys, LOAD_AT_ONCE)):
        store.enqueue(some)
    store.close()


def drain(
    openers: Sequence[Opener], *, limit: int = 100, seconds: float = 600.0, most: int = 10**9
) -> list[Outcome]:
    """Claim and complete *limit* keys at a time, in a process for each of *openers*.

    They begin when all have opened their store, and end after *seconds*, with *most* keys done, or
    when none is left.
    """
    start = _spawning.Barrier(len(openers))
    outcomes: Any = _spawning.Queue()
    processes = [
        _spawning.Process(target=_drain, args=(open_it, start, outcomes, limit, seconds, most))
        for open_it in openers
    ]
    for process in processes:
        process.start()
    found = [outcomes.get(timeout=seconds + 300) for _ in processes]
    for process in processes:
        process.join()
    return found


def rate(outcomes: Sequence[Outcome]) -> float:
    """Keys per second of all processes together."""
    return sum(outcome.keys for outcome in outcomes) / max(o.seconds for o in outcomes)


def _drain(open_it: Opener, start: Any, outcomes: Any, *until: Any) -> None:
    store = open_it()
    start.wait(timeout=300)
    outcomes.put(_drained(store, *until))
    store.close()


def _drained(store: Any, limit: int, seconds: float, most: int) -> Outcome:
    keys, worst, errors = 0, 0.0, []
    claims: Any = True
    began = now = time.perf_counter()
    while claims and keys < most and now - began < seconds:
        try:
            claims = store.claim(limit, LEASE_SECONDS)
            worst = max(worst, time.perf_counter() - now)
            store.complete(*claims)
            keys += len(claims)
        except Exception as error:  # noqa: BLE001 - an error is one of the things measured
            errors.append(f"{type(error).__name__}: {error}")
        now = time.perf_counter()
    return Outcome(keys, now - began, worst, tuple(errors), not claims)
