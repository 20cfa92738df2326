"""One key at a time beside other queues on SQLite, each as its users use it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from machine import load, scratch
from report import Figure, Section, number, ratios, table
from scale import Scale
from workers import LEASE_SECONDS, ours, product_urls

MODES = ("FULL", "NORMAL")


class Queue(Protocol):
    """A queue that is open."""

    def fill(self, keys: Iterator[str]) -> None: ...

    def take(self) -> int:
        """Claim, or get, what is next and mark it done; how many keys that were."""

    def close(self) -> None: ...


class Ours:
    """This store, *limit* keys at a time."""

    def __init__(self, folder: Path, synchronous: str, limit: int = 1) -> None:
        self._store = ours(folder / "queue.db", 0, 1, synchronous.replace("OFF", "NORMAL"))()
        self._limit = limit

    def fill(self, keys: Iterator[str]) -> None:
        self._store.enqueue(keys)

    def take(self) -> int:
        claims = self._store.claim(self._limit, LEASE_SECONDS)
        self._store.complete(*claims)
        return len(claims)

    def close(self) -> None:
        self._store.close()


class PersistQueue:
    def __init__(self, folder: Path, synchronous: str) -> None:
        self._queue: Any = import_module("persistqueue").SQLiteAckQueue(str(folder))
        for connection in (self._queue._putter, self._queue._getter):  # noqa: SLF001
            set_synchronous(connection, synchronous)

    def fill(self, keys: Iterator[str]) -> None:
        for key in keys:
            self._queue.put(key)

    def take(self) -> int:
        if self._queue.empty():
            return 0
        self._queue.ack(self._queue.get(block=False))
        return 1

    def close(self) -> None:
        self._queue.close()


class LiteQueue:
    def __init__(self, folder: Path, synchronous: str) -> None:
        self._queue: Any = import_module("litequeue").LiteQueue(str(folder / "queue.db"))
        set_synchronous(self._queue.conn, synchronous)

    def fill(self, keys: Iterator[str]) -> None:
        for key in keys:
            self._queue.put(key)

    def take(self) -> int:
        if (message := self._queue.pop()) is None:
            return 0
        self._queue.done(message.message_id)
        return 1

    def close(self) -> None:
        self._queue.close()


class Huey:
    def __init__(self, folder: Path, synchronous: str) -> None:
        storage = import_module("huey.storage").SqliteStorage
        self._queue: Any = storage("benchmark", filename=str(folder / "queue.db"))
        set_synchronous(self._queue.conn, synchronous)

    def fill(self, keys: Iterator[str]) -> None:
        for key in keys:
            self._queue.enqueue(key.encode())

    def take(self) -> int:
        return int(self._queue.dequeue() is not None)

    def close(self) -> None:
        self._queue.close()


@dataclass(frozen=True, slots=True)
class Peer:
    """A queue to measure; *package* is what it is installed by."""

    name: str
    package: str
    open: Callable[[Path, str], Queue]
    lacks: str

    @property
    def is_installed(self) -> bool:
        return find_spec(self.package.replace("-", "")) is not None


BATCH = "this store, claim(100) and complete(100)"
SINGLE = "this store, claim(1) and complete(1)"
PEERS = (
    Peer(SINGLE, "", Ours, ""),
    Peer(BATCH, "", lambda folder, synchronous: Ours(folder, synchronous, 100), ""),
    Peer(
        "persist-queue SQLiteAckQueue, get and ack",
        "persist-queue",
        PersistQueue,
        "batches; leases (what a dead process held comes back when one starts anew, and then what "
        "live ones hold, too); more than one process at a time; retries with a delay and a limit; "
        "no key twice (its UniqueAckQ has that); priorities; shards",
    ),
    Peer(
        "litequeue, pop and done",
        "litequeue",
        LiteQueue,
        "batches; leases (what a dead process held stays locked until somebody looks for it); "
        "retries with a delay and a limit; no key twice; priorities; shards; a pop that does not "
        "slow down with the length of the queue",
    ),
    Peer(
        "huey SqliteStorage, dequeue only",
        "huey",
        Huey,
        "an acknowledgement (what a dead process held is lost), so half of the work; batches; "
        "leases; no key twice; shards",
    ),
)


def peers(folder: Path, scale: Scale) -> Section:
    """Keys per second of each, in turn, at equal settings of ``synchronous``."""
    present = [peer for peer in PEERS if not peer.package or peer.is_installed]
    found: dict[tuple[str, str], list[float]] = {(p.name, m): [] for p in present for m in MODES}
    with scratch(folder) as place:
        for peer in present:
            _fill(peer, place, scale.peer_keys)
        for round_ in range(rounds(scale)):
            for mode in MODES:
                for peer in present if round_ % 2 == 0 else reversed(present):
                    found[peer.name, mode].append(_rate(peer, place, mode, scale.seconds))
    section = Section("peers", "One key at a time, beside other queues on SQLite", _about(scale))
    for mode in MODES:
        section.figures += [
            Figure(f"{peer.name}, {mode}", tuple(found[peer.name, mode]), "keys/s")
            for peer in present
        ]
    section.tables.append(_comparison(present, found))
    return section


def rounds(scale: Scale) -> int:
    return scale.rounds // 2 + 1


def set_synchronous(connection: sqlite3.Connection, mode: str) -> None:
    """Set the pragma, and see that it is set."""
    connection.execute(f"PRAGMA synchronous = {mode}")
    [is_set] = connection.execute("PRAGMA synchronous").fetchone()
    if is_set != ("OFF", "NORMAL", "FULL").index(mode):
        raise RuntimeError(f"synchronous is {is_set}, not {mode}.")


def _fill(peer: Peer, place: Path, keys: int) -> None:
    folder = place / f"template {peer.name}"
    folder.mkdir()
    queue = peer.open(folder, "OFF")
    queue.fill(product_urls(keys))
    queue.close()


def _rate(peer: Peer, place: Path, mode: str, seconds: float) -> float:
    folder = place / "run"
    shutil.copytree(place / f"template {peer.name}", folder)
    os.sync()
    queue = peer.open(folder, mode)
    keys = 0
    began = now = time.perf_counter()
    while now - began < seconds and (taken := queue.take()):
        keys += taken
        now = time.perf_counter()
    queue.close()
    shutil.rmtree(folder)
    return keys / (now - began)


def _about(scale: Scale) -> str:
    return (
        f"One process, {scale.peer_keys:,} keys put in beforehand, {rounds(scale)} rounds of "
        f"{scale.seconds:g} seconds or until none is left, all in turn. Every connection has "
        "the `synchronous` named, whatever its library sets by itself (persist-queue: SQLite's "
        "default, FULL in most builds; litequeue: NORMAL; huey: the same default unless told). "
        "Other settings are each library's own. These queues are made for something else; this "
        f"says what a crawl would pay for using them. Load average at the end: {load()}."
    )


def _comparison(present: list[Peer], found: dict[tuple[str, str], list[float]]) -> str:
    rows = []
    for peer in present:
        if not peer.package:
            continue
        cells = [f"{peer.name} ({peer.package} {version(peer.package)})"]
        for name in (SINGLE, BATCH):
            each = [ratios(found[name, mode], found[peer.name, mode]) for mode in MODES]
            cells.append(" / ".join(number(Figure("", ratio).value) for ratio in each))
        rows.append([*cells, peer.lacks])
    modes = " / ".join(MODES)
    heads = ["", f"this store one by one ÷ it, {modes}", f"in batches ÷ it, {modes}", "it lacks"]
    return table(heads, rows)
