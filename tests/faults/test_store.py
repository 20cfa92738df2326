"""What may happen to a store in the middle of a real crawl."""

from __future__ import annotations

import fcntl
import os
import random
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from support.sharded import CRAWL, Crawl, until
from support.single import worker

pytestmark = pytest.mark.parametrize("shop_options", [("--delay=0.05",)])
SHORT_LEASE = ("-s", "HEXSHARD_LEASE_SECONDS=3")
LIMITED = Path(__file__).parents[1] / "support" / "limited.py"


def wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def gate_waits(text: str) -> list[float]:
    return [float(each) for each in re.findall(r"'hexshard/gate_wait_seconds': ([\d.]+)", text)]


@contextmanager
def held_database(store: Path) -> Iterator[None]:
    """Another program, which knows nothing of the gate, has it for writing."""
    with closing(sqlite3.connect(store, timeout=30, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def held_gate(store: Path) -> Iterator[None]:
    with Path(f"{store}.lock").open() as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize("held", [held_gate, held_database])
def test_a_store_that_another_process_holds_past_the_leases_is_waited_for(
    sharded: Crawl, fault_scale, held: Callable[[Path], AbstractContextManager[None]]
) -> None:
    seconds = 90 if fault_scale.long else 9
    sharded.settings = SHORT_LEASE
    sharded.start()
    sharded.wait_until_done(20)
    with held(sharded.store):
        wait(seconds)
    assert sharded.wait() == 0, sharded.text[-4000:]
    assert sharded.complaints() == []
    waited = gate_waits(sharded.text)
    print(waited)
    assert len(waited) == 4
    assert min(waited) > seconds - 5
    # All leases had ended when it was let go, and each was still there for who held it.
    assert "leases were lost" not in sharded.text
    assert "'hexshard/stale'" not in sharded.text
    assert sharded.fetched_again() == []


def test_the_only_worker_tells_how_long_another_program_held_the_database(sharded: Crawl) -> None:
    """Alone, it never waits for the gate."""
    with worker(sharded, "only", *SHORT_LEASE) as only:
        sharded.wait_until_done_by_itself(20)
        with held_database(sharded.store):
            wait(6)
        assert only.wait() == 0
    assert only.stat("gate_wait_seconds") > 3
    assert only.late == 0
    assert sharded.fetched_again() == []
    assert sharded.complaints() == []


def test_a_second_worker_that_waits_beside_may_take_what_lapsed_and_no_key_ends_twice(
    sharded: Crawl,
) -> None:
    with worker(sharded, "first", *SHORT_LEASE) as first, ExitStack() as stack:
        sharded.wait_until_done_by_itself(20)
        with held_database(sharded.store):
            second = stack.enter_context(worker(sharded, "second", *SHORT_LEASE))
            until(lambda: "Spider opened" in second.text, "the second worker")
            wait(5)
        assert first.wait() == second.wait() == 0
    again = sharded.fetched_again()
    print(first.late, second.late, again)
    assert second.stat("gate_wait_seconds") > 3
    assert len(again) <= first.late + second.late
    assert first.stat("done") + second.stat("done") == sharded.count("done")
    assert sharded.complaints() == []


def test_a_disk_that_is_full_stops_the_workers_and_the_rest_is_done_when_there_is_space(
    sharded: Crawl,
) -> None:
    """No file of a worker may grow past a size that is reached in the middle of the crawl."""
    limited = (str(LIMITED), "1000000", *CRAWL)
    sharded.start(command=limited)
    assert sharded.wait() == 1
    assert "Traceback" not in sharded.text
    assert "closed with store_error" in sharded.text
    assert 0 < sharded.count("done") < 290
    with closing(sqlite3.connect(sharded.store)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    sharded.start()
    assert sharded.wait() == 0, sharded.text[-4000:]
    assert sharded.complaints() == []


def deleted(store: Path) -> None:
    store.unlink()


def replaced(store: Path) -> None:
    other = store.with_name("other.sqlite3")
    with closing(sqlite3.connect(other)) as db:
        db.execute("CREATE TABLE another (thing)")
    other.replace(store)


def truncated(store: Path) -> None:
    os.truncate(store, 8192)


def flipped(store: Path) -> None:
    """Every page of the file has a few bits wrong."""
    dice = random.Random(6)
    with store.open("r+b") as file:
        data = bytearray(file.read())
        for page in range(4096, len(data), 4096):
            for _ in range(8):
                data[page + dice.randrange(100)] ^= 1 << dice.randrange(8)
        file.seek(0)
        file.write(data)


@pytest.mark.parametrize("harm", [deleted, replaced, truncated, flipped])
def test_a_file_that_is_harmed_stops_the_crawl_with_a_sentence(
    sharded: Crawl, harm: Callable[[Path], None]
) -> None:
    sharded.start()
    sharded.wait_until_done(20)
    with closing(sqlite3.connect(sharded.store)) as db:
        # So that all of it is in the file, where it can be harmed.
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    harm(sharded.store)
    assert sharded.wait() == 1, sharded.text[-4000:]
    said = [line for line in sharded.text.splitlines() if "The store failed, so" in line]
    print(*said, sep="\n")
    assert said
    assert "Traceback" not in sharded.text
    if harm is deleted:
        assert not sharded.store.exists()


def test_the_harm_is_told_at_the_next_start_as_well(sharded: Crawl) -> None:
    sharded.start()
    assert sharded.wait() == 0
    truncated(sharded.store)
    sharded.start()
    assert sharded.wait() == 1
    assert "Traceback" not in sharded.text
    assert "store_error" in sharded.text
    assert sharded.store.stat().st_size == 8192
