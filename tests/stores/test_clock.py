"""Store time neither runs back nor stands still."""

from __future__ import annotations

import pytest

from scrapy_hexshard import ShardSpec, SQLiteWorkStore
from scrapy_hexshard.store.clock import StoreClock


@pytest.fixture
def time():
    return {"wall": 1000.0, "ticks": 50.0}


@pytest.fixture
def clock(time):
    return StoreClock(lambda: time["wall"], lambda: time["ticks"])


def test_it_is_the_machines_time(clock, time):
    assert clock.now(0) == 1_000_000
    time["wall"] += 0.5
    assert clock.now(1_000_000) == 1_000_500


def test_it_goes_on_by_the_monotonic_clock_when_the_machines_is_behind(clock, time):
    stored = clock.now(0)
    time["wall"] -= 3600
    for _ in range(3):
        time["ticks"] += 2
        assert clock.now(stored) == stored + 2000
        stored += 2000


def test_it_does_not_stand_still_when_asked_often(clock, time):
    stored = clock.now(0)
    time["wall"] -= 3600
    for _ in range(1000):
        time["ticks"] += 0.0004
        stored = clock.now(stored)
    assert stored == pytest.approx(1_000_400, abs=2)


def test_it_is_the_machines_again_once_that_has_caught_up(clock, time):
    stored = clock.now(0)
    time["wall"] -= 10
    time["ticks"] += 5
    stored = clock.now(stored)
    assert stored == 1_005_000
    time["wall"] = 1006.0
    assert clock.now(stored) == 1_006_000


def test_it_goes_on_from_what_another_process_stored(clock, time):
    assert clock.now(5_000_000) == 5_000_000
    time["ticks"] += 1
    assert clock.now(5_000_000) == 5_001_000
    assert clock.now(9_000_000) == 9_000_000


def test_a_clock_set_back_does_not_keep_leases_and_retries_for_ever(path):
    wall = [10_000.0]
    with SQLiteWorkStore(path, ShardSpec(0, 1), clock=lambda: wall[0]) as store:
        store.enqueue(["a"])
        (claim,) = store.claim()
        wall[0] += 5
        store.fail(claim, "x", retry_in=30)
    wall[0] -= 3600
    ticks = [0.0]
    with SQLiteWorkStore(path, ShardSpec(0, 1), clock=lambda: wall[0]) as store:
        store._clock._monotonic = lambda: ticks[0]
        assert store.claim() == []
        assert store.open_work().next_in == 30
        ticks[0] += 29
        assert store.claim() == []
        ticks[0] += 1
        assert store.claim() == ["a"]


def test_a_clock_that_jumped_ahead_and_back_loses_nothing(path):
    wall = [10_000.0]
    with SQLiteWorkStore(path, ShardSpec(0, 1), clock=lambda: wall[0]) as store:
        store.enqueue(["a", "b"])
        (first,) = store.claim(1, lease_seconds=60)
        wall[0] += 3600
        (second,) = store.claim(1, lease_seconds=60)
        wall[0] -= 3600
        assert store.claim() == []
        assert store.renew([first, second], 60) == [first, second]
        assert store.complete(first, second)
