"""What a worker learns of the others: those of its shard, and the shards that have keys left."""

from __future__ import annotations

import pytest

from scrapy_hexshard import ShardSpec, Work, stable_owner
from scrapy_hexshard.store.contract import OpenShard, Settlement


def keys_of(shard: int, shards: int = 3) -> list[str]:
    return [key for n in range(99) if stable_owner(key := f"key {n}", shards) == shard]


class TestCompanions:
    def test_a_worker_is_none_of_its_own(self, store):
        assert store.companions(60) == 0
        store.heartbeat()
        assert store.companions(60) == 0

    def test_workers_seen_lately_are_counted_until_they_end(self, store, other, clock):
        other.heartbeat()
        assert store.companions(60) == 1
        clock.advance(61)
        assert store.companions(60) == 0
        other.heartbeat()
        assert store.companions(60) == 1
        other.end("finished")
        assert store.companions(60) == 0

    def test_those_of_other_shards_are_not(self, backend, clock):
        with (
            backend.open(ShardSpec(0, 2), clock=clock) as store,
            backend.open(ShardSpec(1, 2), clock=clock) as neighbour,
        ):
            neighbour.heartbeat()
            assert store.companions(60) == 0


class TestOpenShards:
    def test_a_shard_is_open_until_its_last_key_has_ended(self, backend, clock):
        with backend.open(ShardSpec(1, 3), clock=clock) as store:
            assert store.open_shards() == []
            store.enqueue(keys_of(1)[:2])
            assert store.open_shards() == [OpenShard(1, 2, None)]
            first, second = store.claim()
            store.complete(first)
            store.fail(second, "later", retry_in=60)
            clock.advance(5)
            assert store.open_shards() == [OpenShard(1, 1, 5.0)]
            clock.advance(60)
            store.fail(*store.claim(), "no", permanent=True)
            assert store.open_shards() == []

    def test_all_shards_are_told_whoever_asks(self, backend, clock):
        with backend.open(3, clock=clock) as looker:
            looker.enqueue(keys_of(0)[:1] + keys_of(2)[:3])
            assert looker.open_shards() == [OpenShard(0, 1, None), OpenShard(2, 3, None)]

    @pytest.mark.parametrize(("reason", "seen"), [("shutdown", 7.0), ("finished", None)])
    def test_a_worker_that_ended_was_seen_then_unless_it_had_finished(
        self, backend, clock, reason, seen
    ):
        with (
            backend.open(ShardSpec(0, 3), clock=clock) as ended,
            backend.open(3, clock=clock) as looker,
        ):
            ended.heartbeat()
            ended.end(reason)
            looker.enqueue(keys_of(0)[:1])
            clock.advance(7)
            assert looker.open_shards() == [OpenShard(0, 1, seen)]

    def test_the_last_sign_of_all_its_workers_counts(self, backend, clock):
        with (
            backend.open(ShardSpec(0, 3), clock=clock) as first,
            backend.open(ShardSpec(0, 3), clock=clock) as second,
        ):
            first.enqueue(keys_of(0)[:1])
            first.heartbeat()
            clock.advance(10)
            second.heartbeat()
            clock.advance(3)
            assert first.open_shards() == [OpenShard(0, 1, 3.0)]

    def test_keys_that_a_page_discovers_open_their_shard_as_that_page_ends(self, backend, clock):
        with backend.open(ShardSpec(0, 3), clock=clock) as store:
            store.enqueue(keys_of(0)[:1])
            [page] = store.claim()
            found = [Work(keys_of(2)[0], "{}")]
            store.settle([Settlement.complete(page, discovered=found)])
            assert store.open_shards() == [OpenShard(2, 1, None)]
