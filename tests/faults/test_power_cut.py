"""A power cut at any moment: every call to the disk is recorded, and cut off at many points."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.power.replay import Disk, Operation, operations

from scrapy_hexshard import SQLiteWorkStore, StoreError

HERE = Path(__file__).parents[1] / "support" / "power"
PROMISES = "promises"
KEYS = 400

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("gcc") is None,
    reason="calls are recorded by a preloaded library, which needs Linux and a C compiler",
)


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("recorder") / "recorder.so"
    source = HERE / "recorder.c"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, "-o", library, source, "-ldl", "-lpthread"], check=True)
    return library


def recorded(recorder: Path, folder: Path, synchronous: str, keys: int) -> list[Operation]:
    (folder / "work").mkdir()
    log = folder / "log"
    environ = {
        **os.environ,
        "LD_PRELOAD": str(recorder),
        "RECORD_FOLDER": str(folder / "work"),
        "RECORD_LOG": str(log),
    }
    command = [sys.executable, HERE / "workload.py", folder / "work", synchronous, str(keys), "1"]
    subprocess.run(command, env=environ, check=True, timeout=120)
    return list(operations(log))


@dataclass
class Promised:
    """What the store had promised to keep by some moment."""

    known: set[str] = field(default_factory=set)
    done: dict[str, int] = field(default_factory=dict)  # with the number of items
    dead: set[str] = field(default_factory=set)

    def take(self, line: bytes) -> None:
        facts = json.loads(line)
        self.known.update(facts.get("known", ()))
        self.done.update(facts.get("done", {}))
        self.dead.update(facts.get("dead", ()))


def cuts(trace: list[Operation], points: int, seed: int) -> list[tuple[int, Promised, dict]]:
    """Cut points spread over the trace, with what had been promised and what is left at each."""
    chance = random.Random(seed)
    wanted = Counter(chance.randrange(1, len(trace)) for _ in range(points))
    disk, promised, found = Disk(), Promised(), []
    for number, operation in enumerate(trace, 1):
        if operation.name == PROMISES:
            promised.take(operation.data)
        else:
            disk.apply(operation)
        for _ in range(wanted[number]):
            frozen = Promised(set(promised.known), dict(promised.done), set(promised.dead))
            found.append((number, frozen, disk.cut(chance)))
    return found


def broken(left: dict[str, bytes], promised: Promised, folder: Path) -> tuple[list[str], int]:
    """What is wrong with the store that is left, and how many promises it has forgotten."""
    folder.mkdir()
    for name, data in left.items():
        (folder / name).write_bytes(data)
    path = folder / "crawl.sqlite3"
    if not path.exists() or not path.stat().st_size:
        return [], len(promised.known)
    try:
        return _compare(path, promised)
    except (sqlite3.DatabaseError, StoreError) as error:
        return [str(error)], len(promised.known)


def _compare(path: Path, promised: Promised) -> tuple[list[str], int]:
    wrong, forgotten = [], 0
    with closing(sqlite3.connect(path)) as db:
        [integrity] = db.execute("PRAGMA integrity_check").fetchone()
        if integrity != "ok":
            wrong.append(integrity)
        if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'keys'").fetchone():
            return wrong, len(promised.known)
        keys = {key for (key,) in db.execute("SELECT key FROM keys")}
        done = dict(
            db.execute(
                "SELECT key, (SELECT count(*) FROM items WHERE items.key = done.id) "
                "FROM done JOIN keys USING (id)"
            )
        )
        dead = {key for (key,) in db.execute("SELECT key FROM dead JOIN keys USING (id)")}
    forgotten += len(promised.known - keys) + len(promised.dead - dead)
    forgotten += sum(done.get(key) != items for key, items in promised.done.items())
    with SQLiteWorkStore(str(path), readonly=True) as store:
        counts = store.counts(all_shards=True)
        if sum(counts.values()) != len(keys) or counts["done"] != len(done):
            wrong.append(f"counts {counts} beside {len(keys)} keys, {len(done)} done")
    return wrong, forgotten


def checkpoints_in_the_middle(trace: list[Operation]) -> bool:
    """Whether pages went from the log into the database while the work was going on."""
    middle = trace[len(trace) // 5 : -len(trace) // 5]
    return any(each.name == "crawl.sqlite3" and each.what == "W" for each in middle)


def look(trace: list[Operation], points: int, folder: Path) -> tuple[list[str], list[int]]:
    wrong, forgotten = [], []
    for number, (at, promised, left) in enumerate(cuts(trace, points, seed=7)):
        place = folder / str(number)
        complaints, lost = broken(left, promised, place)
        wrong += [f"cut {at}: {each}" for each in complaints]
        forgotten.append(lost)
        shutil.rmtree(place)
    return wrong, forgotten


def test_full_forgets_nothing_that_it_promised(recorder, tmp_path, fault_scale):
    trace = recorded(recorder, tmp_path, "FULL", KEYS)
    assert checkpoints_in_the_middle(trace)
    wrong, forgotten = look(trace, fault_scale.times(400), tmp_path)
    print(f"{len(forgotten)} cuts of {len(trace)} calls")
    assert not wrong
    assert not any(forgotten)


def test_normal_stays_whole_and_forgets_the_last_of_it(recorder, tmp_path, fault_scale):
    trace = recorded(recorder, tmp_path, "NORMAL", KEYS)
    assert checkpoints_in_the_middle(trace)
    wrong, forgotten = look(trace, fault_scale.times(400), tmp_path)
    print(
        f"{len(forgotten)} cuts of {len(trace)} calls: {sum(map(bool, forgotten))} forgot "
        f"something, {sum(forgotten) / len(forgotten):.1f} promises on average, "
        f"{max(forgotten)} at most"
    )
    assert not wrong


def test_a_store_that_does_not_sync_would_be_found_out(recorder, tmp_path, fault_scale):
    """The measure can fail: the same trace, as if its syncs had not been."""
    trace = recorded(recorder, tmp_path, "FULL", 200)
    lazy = [each for each in trace if each.what != "S"]
    wrong, forgotten = look(lazy, 60, tmp_path)
    assert wrong or any(forgotten)
