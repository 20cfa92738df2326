"""Full disks and other failures in mid-transaction: told plainly, undone whole, gone on after."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack

import pytest

from scrapy_hexshard import Settlement, ShardSpec, SQLiteWorkStore, StoreUnavailableError, Work

ALONE = ShardSpec(0, 1)
LARGE = [Work(str(n), json.dumps("x" * 50_000)) for n in range(40)]


def limit(store, pages):
    return store._db._connection.execute(f"PRAGMA max_page_count = {pages}").fetchone()[0]


def test_a_full_disk_undoes_the_call_and_it_goes_on_when_there_is_space(store):
    store.enqueue(["key"])
    claim = store.claim()[0]
    limit(store, 1)
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match=r"full.*Free some space"):
            store.enqueue(LARGE)
    assert store.counts() == {"pending": 0, "running": 1, "done": 0, "failed": 0, "dead": 0}
    limit(store, 1_000_000)
    assert store.enqueue(LARGE) == len(LARGE)
    assert store.complete(claim)
    assert store._db.rows("PRAGMA integrity_check") == [("ok",)]


def test_a_call_of_a_group_that_fails_half_way_undoes_all_of_itself(store, query):
    store.enqueue(["key"])
    claim = store.claim()[0]
    query("UPDATE counts SET running = 0")  # so that the last step of a completion fails
    with store.group():
        store.enqueue(["before"])
        with pytest.raises(StoreUnavailableError, match="CHECK"):
            store.settle([Settlement.complete(claim, items=["1"], discovered=["found"])])
        store.enqueue(["after"])
    assert store.renew([claim]) == [claim]
    assert list(store.items()) == []
    assert store.claim() == ["before", "after"]


def test_a_group_that_a_full_disk_undid_fails_as_a_whole(store):
    with ExitStack() as stack:
        stack.enter_context(pytest.raises(StoreUnavailableError, match="no transaction"))
        stack.enter_context(store.group())
        store.enqueue(["lost"])
        limit(store, 300)
        with pytest.raises(StoreUnavailableError, match="full"):
            store.enqueue(LARGE)
        with pytest.raises(StoreUnavailableError, match="whole group"):
            store.enqueue(["never stored"])
    limit(store, 1_000_000)
    assert store.counts()["pending"] == 0
    assert store.enqueue(["later"]) == 1


CODE = """
import resource, signal, sys
from scrapy_hexshard import Settlement, SQLiteWorkStore, ShardSpec, StoreUnavailableError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = SQLiteWorkStore(sys.argv[1], ShardSpec(0, 1))
store.enqueue(str(n) for n in range(500))
claims = store.claim(500)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
done = 0
try:
    for claim in claims:
        assert store.settle([Settlement.complete(claim, items=['"' + "x" * 20_000 + '"'])]).applied
        done += 1
except StoreUnavailableError as error:
    print(done, error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert store.counts()["done"] == done
assert store.complete(*claims[done:])
"""


def test_a_file_that_may_not_grow_loses_nothing_that_was_answered(path):
    result = subprocess.run(
        [sys.executable, "-c", CODE, path], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    done, _, told = result.stdout.partition(" ")
    assert 0 < int(done) < 500
    assert told.startswith(f"Cannot use the store {path}")
    with SQLiteWorkStore(path, ALONE) as store:
        assert store.counts()["done"] == 500
        assert sum(1 for _ in store.item_lines()) == int(done)
        assert store._db.rows("PRAGMA integrity_check") == [("ok",)]


FULL = """
import os, resource, signal, sys
from scrapy_hexshard import Settlement, SQLiteWorkStore, ShardSpec, StoreUnavailableError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path, act = sys.argv[1:]
store = SQLiteWorkStore(path, ShardSpec(0, 1))
store.enqueue(str(n) for n in range(3000))
held = store.claim(1000)
claimed = []
calls = {
    "enqueue": lambda n: store.enqueue([f"new {n}"]),
    "claim": lambda n: claimed.extend(store.claim(1)),
    "settle": lambda n: store.settle([Settlement.complete(held[n], items=["1"])]),
}
changes = {"enqueue": (1, 0, 0), "claim": (-1, 1, 0), "settle": (0, -1, 1)}

def check(n):
    before = zip((2000, 1000, 0), changes[act])
    expected = [count + change * n for count, change in before]
    assert list(store.counts().values()) == [*expected, 0, 0], (n, expected, store.counts())
    assert sum(1 for _ in store.item_lines()) == expected[2]
    assert len(claimed) == (n if act == "claim" else 0)

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

limit(os.path.getsize(path + "-wal") + 400_000)
answered = 0
while True:
    try:
        calls[act](answered)
    except StoreUnavailableError as full:
        error = full
        break
    answered += 1
check(answered)
try:
    calls[act](answered)
except StoreUnavailableError:
    pass
else:
    raise AssertionError("it found space")
check(answered)
print(answered, error)
limit(resource.RLIM_INFINITY)
calls[act](answered)
check(answered + 1)
assert len(store.renew(held)) == 1000 - (answered + 1 if act == "settle" else 0)
assert store.complete(*store.renew(held + claimed))
"""


@pytest.mark.parametrize("act", ["enqueue", "claim", "settle"])
def test_a_disk_that_is_full_by_one_kind_of_call_undoes_that_call_alone(path, act):
    result = subprocess.run(
        [sys.executable, "-c", FULL, path, act], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    answered, _, told = result.stdout.partition(" ")
    assert int(answered) > 3
    assert told.startswith(f"Cannot use the store {path}")
    assert "whether it is full" in told
    with SQLiteWorkStore(path, ALONE) as store:
        counts = store.counts()
        assert counts["running"] == counts["failed"] == 0
        assert counts["pending"] == len(store.claim(10_000))
        assert store._db.rows("PRAGMA integrity_check") == [("ok",)]


def test_a_call_interrupted_as_its_transaction_begins_leaves_none_open(store):
    def interrupt_begin(frame, event, argument):
        return interrupt_next_line if frame.f_code.co_name == "_transaction" else None

    def interrupt_next_line(frame, event, argument):
        if store._db._connection.in_transaction:
            sys.settrace(None)
            raise KeyboardInterrupt
        return interrupt_next_line

    traced = sys.gettrace()
    sys.settrace(interrupt_begin)
    try:
        with pytest.raises(KeyboardInterrupt):
            store.enqueue(["undone"])
    finally:
        sys.settrace(traced)
    assert store.enqueue(["key"]) == 1
    assert store.counts()["pending"] == 1
