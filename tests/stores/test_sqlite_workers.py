"""Workers that died, and what is taken from them; and kills in the midst of everything."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace

import pytest
from support.identities import HERE, dead_identity

from scrapy_hexshard import ShardSpec, SQLiteWorkStore

ALONE = ShardSpec(0, 1)


@pytest.fixture(scope="module")
def gone():
    return dead_identity()


def deaths(query):
    return dict(
        query(
            "SELECT key, deaths FROM keys JOIN (SELECT id, deaths FROM ready UNION ALL "
            "SELECT id, deaths FROM busy) USING (id)"
        )
    )


def test_a_starting_worker_takes_back_what_a_dead_one_held(path, query, gone):
    with SQLiteWorkStore(path, ALONE, identity=gone) as dead:
        dead.enqueue(["a", "b", "c"])
        held = dead.claim(2)
    with SQLiteWorkStore(path, ALONE) as store:
        assert store.counts()["running"] == 2, "taken back by opening alone"
        assert store.claim(1) == ["a"]
        assert store.counts() == {"pending": 2, "running": 1, "done": 0, "failed": 0, "dead": 0}
        assert not store.complete(*held)
    assert deaths(query) == {"a": 1, "b": 1, "c": 0}


def test_it_does_so_at_its_first_claim_only(path, gone):
    with SQLiteWorkStore(path, ALONE) as store, SQLiteWorkStore(path, ALONE, identity=gone) as dead:
        assert store.claim() == []
        store.enqueue(["a"])
        assert dead.claim() == ["a"]
        assert store.claim() == []


@pytest.mark.parametrize("note", [lambda worker: worker.stopping(), lambda worker: worker.end("x")])
def test_a_worker_that_was_told_to_stop_leaves_no_deaths(path, query, gone, note):
    with SQLiteWorkStore(path, ALONE, identity=gone) as dead:
        dead.enqueue(["a"])
        dead.claim()
        note(dead)
    with SQLiteWorkStore(path, ALONE) as store:
        assert store.claim() == ["a"]
    assert deaths(query) == {"a": 0}


def test_a_lease_that_ran_out_is_a_death_unless_its_worker_was_told_to_stop(path, query):
    now = [1000.0]

    def open_store():
        return SQLiteWorkStore(path, ALONE, clock=lambda: now[0])

    with open_store() as hung, open_store() as stopped, open_store() as store:
        store.enqueue(["a", "b"])
        assert hung.claim(1, lease_seconds=1) == ["a"]
        assert stopped.claim(1, lease_seconds=1) == ["b"]
        stopped.stopping()
        now[0] += 2
        assert store.claim() == ["a", "b"]
    assert deaths(query) == {"a": 1, "b": 0}


def test_the_death_of_a_key_that_was_claimed_alone_is_counted_apart(path, query, gone):
    with SQLiteWorkStore(path, ALONE, identity=gone) as dead:
        dead.enqueue(["a"])
        dead.claim()
        query("UPDATE busy SET lone = 1")
    with SQLiteWorkStore(path, ALONE) as store:
        store.claim()
    assert query("SELECT deaths, lone_deaths, lone FROM busy") == [(1, 1, 0)]


def test_deaths_survive_failures_and_releases(path, query, gone):
    with SQLiteWorkStore(path, ALONE, identity=gone) as dead:
        dead.enqueue(["a"])
        dead.claim()
    with SQLiteWorkStore(path, ALONE) as store:
        store.release(*store.claim())
        assert deaths(query) == {"a": 1}
        store.fail(store.claim()[0], "x", retry_in=0)
        assert deaths(query) == {"a": 1}
        store.fail(store.claim()[0], "x", permanent=True)
    assert query("SELECT attempts, deaths, lone_deaths FROM dead") == [(2, 1, 0)]


@pytest.mark.parametrize(
    "doubtful",
    [
        HERE,
        replace(HERE, namespace="pid:[1]", born=1),
        replace(HERE, boot="other", machine="other"),
        replace(HERE, boot=None, born=1),
    ],
)
def test_in_doubt_the_lease_is_waited_for(path, doubtful):
    with SQLiteWorkStore(path, ALONE, identity=doubtful) as other:
        other.enqueue(["a"])
        (claim,) = other.claim()
        with SQLiteWorkStore(path, ALONE) as store:
            assert store.claim() == []
        assert other.complete(claim)


def test_workers_of_other_shards_are_left_alone(path, gone):
    keys = [str(n) for n in range(40)]
    with SQLiteWorkStore(path, ShardSpec(0, 2), identity=gone) as dead:
        dead.enqueue(keys)
        held = dead.claim()
    with SQLiteWorkStore(path, ShardSpec(1, 2)) as store:
        store.claim()
    with SQLiteWorkStore(path, 2) as store:
        assert store.shard_counts()[0].counts["running"] == len(held) > 0


def test_two_stores_of_one_process_are_two_workers(path, query):
    with SQLiteWorkStore(path, ALONE) as first, SQLiteWorkStore(path, ALONE) as second:
        first.enqueue(["a", "b"])
        assert first.claim(1) == ["a"]
        assert second.claim(5) == ["b"]
    assert query("SELECT count(*) FROM workers") == [(2,)]


def test_a_worker_leaves_a_record(path, query):
    now = [1000.0]
    with SQLiteWorkStore(path, ShardSpec(1, 2), clock=lambda: now[0]) as store:
        store.register()
        now[0] += 1
        store.heartbeat()
        now[0] += 1
        store.stopping()
        now[0] += 1
        store.stopping()
        now[0] += 1
        store.end("shutdown")
    columns = "shard, boot, machine, namespace, pid, born, started, heartbeat, stopping, ended"
    assert query(f"SELECT {columns}, reason FROM workers") == [
        (
            1,
            HERE.boot,
            HERE.machine,
            HERE.namespace,
            HERE.pid,
            HERE.born,
            1000_000,
            1004_000,
            1002_000,
            1004_000,
            "shutdown",
        )
    ]


CRASHER = """
import random, sys
from scrapy_hexshard import Settlement, ShardSpec, Work, open_store
store = open_store(sys.argv[1], ShardSpec(0, 1))
chance = random.Random()
while claims := store.claim(20):
    endings = []
    for key in claims:
        dice = chance.random()
        if dice < 0.1:
            endings.append(Settlement.release(key))
        elif dice < 0.3:
            endings.append(Settlement.fail(key, "http 500", retry_in=0))
        else:
            more = [f"{key}/{n}" for n in range(2)] if len(key) < 12 else []
            endings.append(Settlement.complete(key, "done", ['"' + key + '"'], more))
    done = [str(each.claim) for each in endings if each.kind == "complete"]
    assert not store.settle(endings).stale
    print(*done, flush=True)
"""


def truth(query):
    """What the tables say, counted the slow way."""
    states = Counter()
    for state, table in (
        ("pending", "ready"),
        ("pending", "suspects"),
        ("running", "busy WHERE state = 1"),
        ("failed", "busy WHERE state = 3"),
        ("done", "done"),
        ("dead", "dead"),
    ):
        states[state] += query(f"SELECT count(*) FROM {table}")[0][0]
    return dict(states)


def test_kills_in_mid_settle_lose_nothing_that_was_answered(path, query):
    with SQLiteWorkStore(path, ALONE) as store:
        store.enqueue(str(n) for n in range(3000))
    chance = random.Random(11)
    answered = []
    for _ in range(10):
        crashers = [
            subprocess.Popen(
                [sys.executable, "-c", CRASHER, path], stdout=subprocess.PIPE, text=True
            )
            for _ in range(3)
        ]
        answered += crashers[0].stdout.readline().split()
        time.sleep(chance.uniform(0, 0.03))
        for crasher in crashers:
            crasher.send_signal(signal.SIGKILL)
        for crasher in crashers:
            lines, _ = crasher.communicate()
            answered += [
                key for line in lines.splitlines(True) if line[-1] == "\n" for key in line.split()
            ]
        assert query("PRAGMA integrity_check") == [("ok",)]
        with SQLiteWorkStore(path, readonly=True) as reader:
            assert reader.counts() == truth(query)
            done = {key for (key,) in query("SELECT key FROM keys JOIN done USING (id)")}
            assert set(answered) <= done
            assert sorted(reader.items()) == sorted(done)
            assert sum(truth(query).values()) == query("SELECT count(*) FROM keys")[0][0]
            assert reader.outcomes()["done"] == len(done)
    assert len(set(answered)) == len(answered) > 0
