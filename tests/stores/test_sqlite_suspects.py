"""How suspects are kept: apart from the ready keys, whose claims cost no more for that."""

from __future__ import annotations

import pytest
from support.identities import dead_identity

from scrapy_hexshard import RetryPolicy, ShardSpec, SQLiteWorkStore

ALONE = ShardSpec(0, 1)


@pytest.fixture
def die(path):
    gone = dead_identity()

    def die(times, limit=1000):
        for _ in range(times):
            with SQLiteWorkStore(path, ALONE, identity=gone) as worker:
                worker.claim(limit)

    return die


def test_a_condemned_key_is_recorded_as_other_dead_keys_are(path, query, die):
    with SQLiteWorkStore(path, ALONE) as store:
        store.enqueue(["a"])
        store.fail(*store.claim(), "http 500", retry_in=0)
    die(5)
    with SQLiteWorkStore(path, ALONE) as store:
        assert store.claim() == []
    columns = "attempts, deaths, lone_deaths, outcomes.outcome, text"
    assert query(f"SELECT {columns} FROM dead JOIN outcomes ON outcomes.id = dead.outcome") == [
        (1, 5, 3, "worker died", None)
    ]
    last = query("SELECT max(worker) FROM dead"), query("SELECT max(id) - 1 FROM workers")
    assert last[0] == last[1], "the worker is not the one that died last"
    assert query("SELECT count(*) FROM busy") == query("SELECT count(*) FROM suspects") == [(0,)]


def test_a_suspect_that_fails_and_returns_keeps_its_deaths(path, query, die):
    with SQLiteWorkStore(path, ALONE) as store:
        store.enqueue(["a"])
    die(3)
    with SQLiteWorkStore(path, ALONE) as store:
        (claim,) = store.claim()
        assert query("SELECT deaths, lone_deaths, lone FROM busy") == [(3, 1, 1)]
        store.fail(claim, "http 500", retry_in=0)
        assert query("SELECT deaths, lone_deaths, lone FROM busy") == [(3, 1, 0)]
        store.release(*store.claim())
    row = "SELECT attempts, deaths, lone_deaths, error FROM suspects"
    assert query(row) == [(1, 3, 1, "http 500")]


def test_more_than_are_looked_at_at_once_may_become_suspects_by_a_lapse(path, query):
    now = [1000.0]
    policy = RetryPolicy(max_deaths=1)

    def open_store():
        return SQLiteWorkStore(path, ALONE, clock=lambda: now[0], policy=policy)

    with open_store() as hung, open_store() as store:
        store.enqueue(str(n) for n in range(50))
        hung.claim(40, lease_seconds=1)
        now[0] += 1
        assert len(store.claim(3)) == 3
        assert query("SELECT count(*) FROM suspects") == [(40,)]
        assert store.counts() == {"pending": 47, "running": 3, "done": 0, "failed": 0, "dead": 0}


def test_a_claim_of_ordinary_keys_costs_no_more_where_there_are_suspects(path, query, die):
    def cost():
        ran = []
        store._db._connection.set_trace_callback(ran.append)
        claims = store.claim(100)
        store._db._connection.set_trace_callback(None)
        assert len(claims) == 100
        store.complete(*claims)
        return sum(not sql.startswith("PRAGMA") for sql in ran)

    with SQLiteWorkStore(path, ALONE) as store:
        store.enqueue(str(n) for n in range(200))
        store.complete(*store.claim(100))  # so that the first claim's own work is not counted
        without = cost()
        store.enqueue(f"suspect {n}" for n in range(500))
    die(2)
    with SQLiteWorkStore(path, ALONE) as store:
        store.enqueue(str(n) for n in range(200, 400))
        store.complete(*store.claim(100))
        assert query("SELECT count(*) FROM suspects") == [(500,)]
        assert cost() == without == 10
