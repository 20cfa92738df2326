"""How much a benchmark does: in full, quickly, or just enough to see that it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The sizes of all benchmarks."""

    rounds: int
    seconds: float  # of one measurement
    batch: int  # keys claimed at a time
    keys: int  # for each process that drains a store for so long
    small: int  # the store that a large one is compared with
    large: int
    crowd: int  # processes on one file
    crowd_keys: int  # for each of them
    peer_keys: int
    products: int  # in the shop
    crawls: int  # rounds of them
    crash_products: int
    crash_rounds: int
    crash_peers: bool  # beside ours
    patience: float  # seconds that one of its crawls may take


FULL = Scale(
    rounds=9,
    seconds=3,
    batch=100,
    keys=100_000,
    small=100_000,
    large=10_000_000,
    crowd=16,
    crowd_keys=100_000,
    peer_keys=20_000,
    products=1000,
    crawls=9,
    crash_products=1500,
    crash_rounds=2,
    crash_peers=True,
    patience=420,
)
QUICK = Scale(
    rounds=3,
    seconds=1,
    batch=100,
    keys=50_000,
    small=20_000,
    large=500_000,
    crowd=16,
    crowd_keys=20_000,
    peer_keys=4_000,
    products=200,
    crawls=3,
    crash_products=300,
    crash_rounds=1,
    crash_peers=True,
    patience=420,
)
TINY = Scale(
    rounds=2,
    seconds=0.2,
    batch=10,
    keys=20_000,
    small=4_000,
    large=20_000,
    crowd=3,
    crowd_keys=20_000,
    peer_keys=200,
    products=20,
    crawls=2,
    crash_products=60,
    crash_rounds=1,
    crash_peers=False,
    patience=60,
)
