"""Measures the SQLite store. README.md beside it says what each figure means."""

from __future__ import annotations

import sys

from beside_plain import batches, crowd
from command import Benchmark, run
from large_store import load, size
from peers import peers

BENCHMARKS: dict[str, Benchmark] = {
    "plain": batches,
    "load": load,
    "size": size,
    "crowd": crowd,
    "peers": peers,
}
PACKAGES = ("scrapy-hexshard", "persist-queue", "litequeue", "huey")

if __name__ == "__main__":
    sys.exit(run("store.py", __doc__, BENCHMARKS, PACKAGES))
