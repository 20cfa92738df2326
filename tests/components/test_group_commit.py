"""What each call of a group is told, whatever becomes of the others; on a real store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from scrapy_hexshard import Settlement, ShardSpec, SQLiteWorkStore, StoreError, Work
from scrapy_hexshard.components.group_commit import run_group
from scrapy_hexshard.components.store_calls import Call, CallQueue, Rank
from scrapy_hexshard.errors import PayloadError, StoreUnavailableError

KEYS = [f"key {n}" for n in range(4)]


@pytest.fixture
def store(store_path: Path) -> Iterator[SQLiteWorkStore]:
    with SQLiteWorkStore(store_path, ShardSpec(0, 1)) as store:
        store.enqueue(KEYS)
        yield store


def settling(settlement: Settlement) -> Call:
    def alone(store: SQLiteWorkStore) -> bool:
        return not store.settle([settlement]).stale

    return Call(Rank.SETTLE, alone, Deferred(), settlement)  # type: ignore[arg-type]


def other(operation: Callable[[Any], Any], rank: Rank = Rank.OTHER) -> Call:
    return Call(rank, operation, Deferred())


def results(
    store: SQLiteWorkStore, group: list[Call], before: Callable[[bool], None] = bool
) -> dict[int, Any]:
    """The result of each call, by its place in *group*."""
    told = run_group(store, group, before)
    assert len(told) == len(group)
    return {next(n for n, each in enumerate(group) if each is call): got for call, got in told}


def test_a_commit_that_fails_is_the_end_of_every_call_and_of_nothing_else(store) -> None:
    claims = store.claim()
    large = [Work(str(n), json.dumps("x" * 50_000)) for n in range(40)]
    pages = store._db.rows("PRAGMA page_count")[0][0]
    store._db._connection.execute(f"PRAGMA max_page_count = {pages + 20}")
    told = results(
        store,
        [
            *(settling(Settlement.complete(claim, items=["1"])) for claim in claims),
            other(lambda store: store.enqueue(large)),
            other(lambda store: store.counts()),
        ],
    )
    assert all(isinstance(result, StoreUnavailableError) for result in told.values()), told
    store._db._connection.execute("PRAGMA max_page_count = 1000000")
    assert store.counts()["running"] == len(KEYS)
    assert store.complete(*claims)
    assert list(store.items()) == []


def test_a_settlement_that_cannot_be_stored_fails_alone(store) -> None:
    first, bad, lost, last = store.claim()
    assert store.release(lost)
    told = results(
        store,
        [
            settling(Settlement.complete(first, items=["1"])),
            settling(Settlement.complete(bad, items=["no JSON"])),
            settling(Settlement.complete(lost, items=["2"])),
            settling(Settlement.complete(last, items=["3"])),
        ],
    )
    assert isinstance(told.pop(1), PayloadError)
    assert told == {0: True, 2: False, 3: True}
    assert list(store.items()) == [1, 3]
    assert store.counts()["running"] == 1


def test_feeds_that_refuse_keep_all_settlements_back_and_nothing_else(store) -> None:
    def refuse(durable: bool) -> None:
        assert durable
        assert store.counts()["done"] == 0
        raise StoreError("The feed is full.")

    done, failed = store.claim(2)
    told = results(
        store,
        [
            settling(Settlement.complete(done, items=["1"])),
            settling(Settlement.fail(failed, "http 500")),
            other(lambda store: store.claim(), Rank.CLAIM),
        ],
        refuse,
    )
    assert [str(told[n]) for n in (0, 1)] == ["The feed is full."] * 2
    assert told[2] == KEYS[2:]
    assert store.counts()["running"] == 4
    assert list(store.items()) == []


def test_what_makes_room_goes_before_what_takes_it_and_the_last_call_apart() -> None:
    calls = CallQueue()
    for rank in (Rank.CLOSE, Rank.CLAIM, Rank.OTHER, Rank.SETTLE, Rank.CLAIM, Rank.PARK):
        calls.put(other(bool, rank))
    groups = [[call.rank for call in group] for group in calls.next_groups()]
    assert groups == [
        [Rank.SETTLE, Rank.PARK, Rank.OTHER, Rank.CLAIM, Rank.CLAIM],
        [Rank.CLOSE],
    ]
