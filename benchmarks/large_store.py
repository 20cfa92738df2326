"""Ten million keys in one file: how fast they get in, and what their number costs later."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from machine import load as busy
from machine import scratch
from report import Figure, Section, ratios
from scale import Scale
from workers import KEY_BYTES, drain, fill, ours, product_urls

from scrapy_hexshard import SQLiteWorkStore
from scrapy_hexshard.store.contract import State

SHARDS = 4
PARTS = 10
COUNTS = 1000
OPENINGS = 10
STATUS_RUNS = 9
_spawning = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A bulk load: keys per second in each tenth of it, and what it took."""

    keys: int
    seconds: float
    tenths: tuple[float, ...]
    peak_memory: float  # MB
    file_bytes: int


def load(folder: Path, scale: Scale) -> Section:
    """Bulk loads; the one of plain keys stays in *folder* for size()."""
    for file in folder.glob("large.sqlite3*"):
        file.unlink()
    quick = loaded(large_path(folder), scale.large, plain_ascii=True)
    with scratch(folder) as place:
        slow = loaded(place / "long-way.sqlite3", scale.large // 4, plain_ascii=False)
    return Section(
        "load",
        "Bulk load",
        f"One enqueue() of {quick.keys:,} keys of {KEY_BYTES} bytes from a generator, in one "
        "process, at synchronous=FULL; their making is in the time. The second load has "
        f"{slow.keys:,} of the same keys with the host in upper case, so that each takes the long "
        f"way to its canonical form. Load average at the end: {busy()}.",
        [
            Figure("plain ASCII keys", (quick.keys / quick.seconds,), "keys/s", at_least=25_000),
            Figure("plain ASCII keys, by tenths of the load", quick.tenths, "keys/s"),
            Figure("keys the long way", (slow.keys / slow.seconds,), "keys/s", at_least=15_000),
            Figure("keys the long way, by tenths", slow.tenths, "keys/s"),
            Figure("peak memory", (quick.peak_memory, slow.peak_memory), "MB", at_most=300),
            Figure("on disk per pending key", (quick.file_bytes / quick.keys,), "B", at_most=170),
        ],
    )


def size(folder: Path, scale: Scale) -> Section:
    """Rates and counts with *scale.large* keys, half of them done, beside *scale.small* keys."""
    path = half_done(folder, scale)
    small: list[float] = []
    large: list[float] = []
    with scratch(folder) as place:
        template, copy = place / "template.sqlite3", place / "run.sqlite3"
        fill(ours(template, 0, SHARDS)(), product_urls(scale.small))
        for number in range(scale.rounds):
            shutil.copyfile(template, copy)
            os.sync()
            for which in (small, large) if number % 2 == 0 else (large, small):
                which.append(_rate_over_shards(copy if which is small else path, scale.small // 5))
    counts = _counts_times(path)
    return Section(
        "size",
        "What the number of keys costs",
        f"claim(100) with complete(100), {scale.small // 5:,} keys of each of {SHARDS} shards in "
        f"turn, at synchronous=FULL, in {scale.rounds} rounds: once in a fresh store of "
        f"{scale.small:,} keys, once in one of {scale.large:,} keys of which half are done. Load "
        f"average at the end: {busy()}.",
        [
            Figure(f"{scale.small:,} keys", tuple(small), "keys/s"),
            Figure(f"{scale.large:,} keys, half of them done", tuple(large), "keys/s"),
            Figure("ratio", ratios(large, small), at_least=0.7),
            Figure(f"counts() at {scale.large:,} keys", counts, "ms"),
            Figure(f"the slowest of {COUNTS:,} counts()", (max(counts),), "ms", at_most=5),
            Figure("`hexdigest-shard status`, the command", _status_times(path), "s", at_most=0.3),
        ],
    )


def large_path(folder: Path) -> Path:
    return folder / "large.sqlite3"


def half_done(folder: Path, scale: Scale) -> Path:
    """The large store, half of its keys done; loaded if it is not there, or is another size."""
    path = large_path(folder)
    if not path.exists() or _total(path) != scale.large:
        for file in folder.glob("large.sqlite3*"):
            file.unlink()
        loaded(path, scale.large, plain_ascii=True)
    for shard in range(SHARDS):
        with SQLiteWorkStore(path, SHARDS) as store:
            done = store.shard_counts()[shard].counts[State.DONE]
        if (left := scale.large // 2 // SHARDS - done) > 0:
            drain([ours(path, shard, SHARDS)], limit=min(left, 1000), most=left, seconds=3600)
    return path


def loaded(path: Path, keys: int, *, plain_ascii: bool) -> Loaded:
    """Load so many keys in a process of its own."""
    answer: Any = _spawning.Queue()
    process = _spawning.Process(target=_load, args=(path, keys, plain_ascii, answer))
    process.start()
    found: Loaded = answer.get()
    process.join()
    return found


def _load(path: Path, keys: int, plain_ascii: bool, answer: Any) -> None:
    store = SQLiteWorkStore(path, SHARDS)
    ticks = [time.perf_counter()]
    urls = product_urls(keys, plain_ascii=plain_ascii)
    added = store.enqueue(_ticking(urls, keys, ticks))
    store.close()
    ticks[-1] = time.perf_counter()
    if added != keys:
        raise RuntimeError(f"{added} of {keys} keys were new.")
    tenths = [keys / PARTS / (b - a) for a, b in pairwise(ticks)]
    peak = _peak_memory()
    answer.put(Loaded(keys, ticks[-1] - ticks[0], tuple(tenths), peak, path.stat().st_size))


def _ticking(urls: Iterator[str], keys: int, ticks: list[float]) -> Iterator[str]:
    """The urls; the time is noted after each tenth of them."""
    for _ in range(PARTS):
        yield from islice(urls, keys // PARTS)
        ticks.append(time.perf_counter())


def _peak_memory() -> float:
    """Of this process, in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError("/proc does not tell the peak memory here.")


def _rate_over_shards(path: Path, most: int) -> float:
    outcomes = [drain([ours(path, shard, SHARDS)], most=most)[0] for shard in range(SHARDS)]
    return sum(outcome.keys for outcome in outcomes) / sum(outcome.seconds for outcome in outcomes)


def _total(path: Path) -> int:
    with SQLiteWorkStore(path) as store:
        return sum(store.counts(all_shards=True).values())


def _counts_times(path: Path) -> tuple[float, ...]:
    """Milliseconds of each of many calls."""
    times = []
    for _ in range(OPENINGS):
        with SQLiteWorkStore(path) as store:  # the first call of each has nothing cached
            for _ in range(COUNTS // OPENINGS):
                began = time.perf_counter()
                store.counts(all_shards=True)
                times.append((time.perf_counter() - began) * 1000)
    return tuple(times)


def _status_times(path: Path) -> tuple[float, ...]:
    times = []
    for _ in range(STATUS_RUNS):
        began = time.perf_counter()
        command = [sys.executable, "-m", "scrapy_hexshard", "status", str(path)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - began)
    return tuple(times)
