"""Every verb of the contract and every way it can turn out."""

from __future__ import annotations

import json
import pickle
import threading
from contextlib import suppress

import pytest

from scrapy_hexshard import (
    InvalidKeyError,
    PayloadError,
    RetryPolicy,
    Settlement,
    ShardSpec,
    StoreError,
    StoreMismatchError,
    Work,
    stable_owner,
)
from scrapy_hexshard.store.contract import Kind


def urls(n):
    return [f"https://shop.example/p/{i}" for i in range(n)]


def drain(store, limit=100):
    claims = []
    while batch := store.claim(limit):
        claims += batch
        store.complete(*batch)
    return claims


def test_the_example_of_the_readme_works(backend):
    def fetch_product(key):
        if key.endswith("3"):
            raise ValueError("no such product")

    store = backend.open(ShardSpec(index=0, count=4))
    store.enqueue(urls(40))
    mine = [url for url in urls(40) if stable_owner(url, 4) == 0]
    for key in store.claim(limit=100, lease_seconds=1800):
        try:
            fetch_product(key)
        except Exception as exc:
            store.fail(key, str(exc))
        else:
            store.complete(key)
    bad = [url for url in mine if url.endswith("3")]
    assert store.counts() == {
        "pending": 0,
        "running": 0,
        "done": len(mine) - len(bad),
        "failed": len(bad),
        "dead": 0,
    }
    store.close()


class TestEnqueue:
    def test_tells_how_many_keys_were_new(self, store):
        assert store.enqueue(urls(3)) == 3
        assert store.enqueue(urls(5)) == 2
        assert store.enqueue([]) == 0
        assert store.counts()["pending"] == 5

    def test_two_spellings_of_a_url_are_one_key(self, store):
        spellings = [
            "https://Shop.Example:443/p?q=1#part",
            "HTTPS://user:word@shop.example/p?q=1",
            Work("https://shop.example/p?q=1"),
        ]
        assert store.enqueue(spellings) == 1
        assert store.claim() == ["https://shop.example/p?q=1"]

    def test_takes_ids_as_well(self, store):
        assert store.enqueue(["  B00-1 ", "B00-1", "42"]) == 2
        assert store.claim() == ["B00-1", "42"]

    def test_stores_keys_of_every_shard_for_their_owners(self, backend):
        with backend.open(ShardSpec(0, 3)) as store:
            assert store.enqueue(urls(60)) == 60
        found = []
        for index in range(3):
            with backend.open(ShardSpec(index, 3)) as store:
                claims = drain(store)
                assert {stable_owner(key, 3) for key in claims} == {index}
                found += claims
        assert sorted(found) == sorted(urls(60))

    def test_stores_batches_while_the_iterable_goes_on(self, backend):
        seen = []

        def keys():
            yield from urls(10_001)
            seen.append(store.counts()["pending"])
            yield "last"

        with backend.open() as store:
            assert store.enqueue(keys()) == 10_002
        assert seen == [10_000]

    def test_a_bad_key_keeps_earlier_batches_and_nothing_of_its_own(self, store):
        with pytest.raises(InvalidKeyError):
            store.enqueue([*urls(10_005), "", "later"])
        assert store.counts()["pending"] == 10_000
        assert store.enqueue(urls(10_005)) == 5

    @pytest.mark.parametrize("bad", [None, 7, b"https://shop.example/"])
    def test_a_key_that_is_no_text_is_invalid(self, store, bad):
        with pytest.raises(InvalidKeyError, match="text"):
            store.enqueue(["good", bad])
        assert store.counts()["pending"] == 0

    @pytest.mark.parametrize("alone", ["https://shop.example/", Work("key"), b"key"])
    def test_a_single_key_without_a_list_is_refused(self, store, alone):
        with pytest.raises(TypeError, match="put it into one"):
            store.enqueue(alone)

    @pytest.mark.parametrize("payload", ["{", "", "NaN", "{'a': 1}", 5, '"\ud800"'])
    def test_a_payload_that_is_not_json_is_refused(self, store, payload):
        with pytest.raises(PayloadError):
            store.enqueue([Work("first"), Work("key", payload)])
        assert store.counts()["pending"] == 0

    def test_a_payload_may_have_a_megabyte(self, store):
        payload = json.dumps("x" * 999_998)
        store.enqueue([Work("key", payload)])
        assert store.claim()[0].payload == payload
        with pytest.raises(PayloadError, match="1000001"):
            Work("key", json.dumps("x" * 999_999))

    def test_many_large_payloads_are_stored(self, store):
        payload = json.dumps("é" * 400_000, ensure_ascii=False)
        assert store.enqueue(Work(str(n), payload) for n in range(30)) == 30
        assert {claim.payload for claim in store.claim()} == {payload}


class TestKnownKeys:
    def test_a_payload_given_later_replaces_the_stored_one_and_none_replaces_nothing(self, store):
        store.enqueue([Work("a", "1"), "b"])
        assert store.enqueue([Work("a", "2"), Work("b", "3"), "c"]) == 1
        store.enqueue(["a", "b"])
        assert [claim.payload for claim in store.claim()] == ["2", "3", None]

    def test_the_higher_priority_wins(self, store):
        store.enqueue([Work("a", priority=1), Work("b", priority=5), Work("c", priority=-2)])
        store.enqueue([Work("a", priority=9), Work("b", priority=2), "c"])
        claims = store.claim()
        assert claims == ["a", "b", "c"]
        assert [claim.priority for claim in claims] == [9, 5, 0]

    def test_the_same_holds_within_one_batch(self, store):
        assert store.enqueue(["a", "b", Work("b", "1", 7), Work("b", "2", 3)]) == 2
        claim = store.claim(1)[0]
        assert (claim, claim.payload, claim.priority) == ("b", "2", 7)

    def test_a_failed_key_takes_both_too(self, store, clock):
        store.enqueue(["a", "b"])
        store.fail(store.claim(1)[0], "x", retry_in=5)
        store.fail(store.claim(1)[0], "x", retry_in=5)
        store.enqueue([Work("b", '"new"', 4)])
        clock.advance(5)
        claims = store.claim()
        assert claims == ["b", "a"]
        assert [claim.payload for claim in claims] == ['"new"', None]

    def test_running_done_and_dead_keys_stay_as_they_are(self, store):
        store.enqueue([Work(key, '"old"') for key in ("running", "done", "dead")])
        running, done, dead = store.claim()
        store.complete(done)
        store.fail(dead, "gone", permanent=True)
        before = store.counts()
        changed = [Work(key, '"new"', 8) for key in ("running", "done", "dead")]
        assert store.enqueue(changed) == 0
        assert store.counts() == before
        store.release(running)
        claim = store.claim()[0]
        assert (claim, claim.payload, claim.priority) == ("running", '"old"', 0)


class TestClaim:
    def test_gives_the_highest_priority_first_and_then_the_first_in(self, store):
        store.enqueue([Work("a"), Work("b", priority=2), Work("c", priority=-1), Work("d")])
        store.enqueue([Work("e", priority=2)])
        assert store.claim(3) == ["b", "e", "a"]
        assert store.claim(3) == ["d", "c"]

    def test_keys_come_in_the_order_they_were_given(self, store):
        keys = urls(500)
        store.enqueue(keys)
        assert drain(store, 90) == keys

    def test_gives_no_more_than_the_limit_and_nothing_when_there_is_nothing(self, store):
        assert store.claim() == []
        store.enqueue(urls(5))
        assert store.claim(0) == []
        assert len(store.claim(3)) == 3
        assert len(store.claim(3)) == 2
        assert store.claim(3) == []

    def test_a_claim_knows_its_attempt_payload_and_priority(self, store):
        store.enqueue([Work("key", '{"a": 1}', 3)])
        claim = store.claim()[0]
        assert (claim.attempt, claim.payload, claim.priority) == (1, '{"a": 1}', 3)

    def test_each_claim_has_a_token_of_its_own(self, store):
        store.enqueue([Work(url, priority=n % 7) for n, url in enumerate(urls(60))])
        tokens = []
        for _ in range(3):
            claims = store.claim(20)
            tokens += [claim.token for claim in claims]
            store.release(*claims[::2])
        while claims := store.claim(20):
            tokens += [claim.token for claim in claims]
        assert len(set(tokens)) == len(tokens) == 90

    def test_a_worker_never_claims_what_it_holds(self, store, clock):
        store.enqueue(urls(3))
        held = store.claim(2, lease_seconds=10)
        clock.advance(11)
        assert store.claim(5) == urls(3)[2:]
        assert store.claim(5) == []
        assert store.renew(held, 10) == held
        assert store.complete(*held)

    def test_an_expired_lease_is_lost_only_when_another_worker_claims_the_key(
        self, store, other, clock
    ):
        store.enqueue(urls(3))
        first, second, third = store.claim(lease_seconds=10)
        assert other.claim() == []
        clock.advance(10)
        assert other.claim(1) == [first]
        assert store.settle([Settlement.complete(first), Settlement.complete(second)]) == (
            [second],
            [first],
        )
        assert store.renew([first, third], 10) == [third]
        assert other.claim() == []
        assert store.counts()["running"] == 2

    def test_a_lost_key_comes_at_its_place(self, store, other, clock):
        store.enqueue([Work("low", priority=1), Work("high", priority=5), Work("mid", priority=3)])
        assert store.claim(1, lease_seconds=10) == ["high"]
        clock.advance(10)
        other.enqueue([Work("top", priority=9)])
        assert other.claim(3) == ["top", "high", "mid"]
        assert other.claim(3) == ["low"]

    def test_of_several_lost_keys_the_first_by_priority_goes_first(self, store, other, clock):
        store.enqueue([Work("low"), Work("high", priority=1)])
        assert store.claim(1, lease_seconds=10) == ["high"]
        assert store.claim(1, lease_seconds=5) == ["low"]
        clock.advance(10)
        assert other.claim(1) == ["high"]
        assert other.claim(1) == ["low"]

    def test_a_lost_key_keeps_its_attempts(self, store, other, clock):
        store.enqueue(["key"])
        store.fail(store.claim()[0], "x", retry_in=0)
        assert store.claim(lease_seconds=1)[0].attempt == 2
        clock.advance(1)
        assert other.claim()[0].attempt == 2

    @pytest.mark.parametrize("lease", [0, -1, float("nan"), float("inf")])
    def test_a_lease_takes_a_time(self, store, lease):
        store.enqueue(["key"])
        with pytest.raises(StoreError, match="lease"):
            store.claim(lease_seconds=lease)
        assert store.counts()["pending"] == 1

    def test_a_fraction_of_a_second_is_a_lease(self, store, other, clock):
        store.enqueue(["key"])
        store.claim(lease_seconds=0.25)
        clock.advance(0.2)
        assert other.claim() == []
        clock.advance(0.1)
        assert other.claim() == ["key"]

    def test_a_pickled_claim_is_settled_by_another_worker(self, store, other):
        store.enqueue([Work("key", "[1]", 2)])
        claim = store.claim()[0]
        copy = pickle.loads(pickle.dumps(claim))
        assert (copy, vars(copy)) == (claim, vars(claim))
        assert other.complete(copy)
        assert not store.complete(claim)


class TestRenew:
    def test_extends_a_lease_from_now(self, store, other, clock):
        store.enqueue(["key"])
        claims = store.claim(lease_seconds=10)
        clock.advance(9)
        assert store.renew(claims, 10) == claims
        clock.advance(9)
        assert other.claim() == []
        clock.advance(1)
        assert other.claim() == ["key"]

    def test_never_shortens_one(self, store, other, clock):
        store.enqueue(["key"])
        store.renew(store.claim(lease_seconds=10), 1)
        clock.advance(9)
        assert other.claim() == []

    def test_leaves_out_what_was_settled(self, store):
        store.enqueue(urls(3))
        first, second, third = store.claim()
        store.complete(first)
        store.fail(second, "x")
        assert store.renew([first, second, third]) == [third]
        assert store.renew([]) == []


class TestSettle:
    def test_a_bare_key_is_a_type_error_that_names_claim(self, store):
        store.enqueue(["key"])
        store.claim()
        for settle in (store.complete, store.release, lambda key: store.fail(key, "x")):
            with pytest.raises(TypeError, match="Claim"):
                settle("key")
        assert store.counts()["running"] == 1

    def test_stores_items_and_discovered_keys_with_the_completion(self, store):
        store.enqueue(["page"])
        page = store.claim()[0]
        found = ["next", Work("best", "[1]", 5), "page"]
        settled = store.settle([Settlement.complete(page, "done", ['{"n": 1}', "2"], found)])
        assert settled == ([page], [])
        assert list(store.items()) == [{"n": 1}, 2]
        assert store.counts() == {"pending": 2, "running": 0, "done": 1, "failed": 0, "dead": 0}
        assert store.claim() == ["best", "next"]

    def test_discovered_keys_go_to_their_owners(self, backend):
        with backend.open(ShardSpec(0, 2)) as store:
            mine = [url for url in urls(20) if stable_owner(url, 2) == 0]
            store.enqueue(mine[:1])
            store.settle([Settlement.complete(store.claim()[0], discovered=urls(20))])
        with backend.open(ShardSpec(1, 2)) as store:
            assert store.claim() == [url for url in urls(20) if url not in mine]

    def test_nothing_of_a_stale_settlement_is_stored(self, store, other, clock):
        store.enqueue(["page"])
        page = store.claim(lease_seconds=1)[0]
        clock.advance(1)
        again = other.claim()[0]
        late = Settlement.complete(page, "late", ['"late"'], ["found late"])
        assert store.settle([late]) == ([], [page])
        assert list(store.items()) == []
        assert store.outcomes() == {}
        assert store.counts()["pending"] == 0
        assert other.complete(again)

    @pytest.mark.parametrize("kind", [Kind.FAIL, Kind.RELEASE])
    def test_only_a_completion_brings_items_and_keys(self, store, kind):
        store.enqueue(["page"])
        page = store.claim()[0]
        settled = store.settle([Settlement(page, kind, "x", items=["1"], discovered=["found"])])
        assert settled == ([page], [])
        assert list(store.items()) == []
        assert sum(store.counts().values()) == 1

    def test_the_second_settlement_of_a_claim_is_stale(self, store):
        store.enqueue(["key"])
        claim = store.claim()[0]
        twice = [Settlement.complete(claim, items=["1"]), Settlement.complete(claim, items=["2"])]
        assert store.settle(twice) == ([claim], [claim])
        assert list(store.items()) == [1]
        assert store.counts()["done"] == 1
        assert not store.complete(claim)

    @pytest.mark.parametrize(
        ("bad", "error"),
        [
            ({"discovered": ["good", ""]}, InvalidKeyError),
            ({"items": ['"good"', "{"]}, PayloadError),
            ({"items": [{"n": 1}]}, PayloadError),
            ({"items": ['"\ud800"']}, PayloadError),
        ],
    )
    def test_what_cannot_be_stored_undoes_the_whole_call(self, store, bad, error):
        store.enqueue(urls(2))
        first, second = store.claim()
        good = Settlement.complete(first, "done", ["1"], ["good too"])
        with pytest.raises(error):
            store.settle([good, Settlement.complete(second, **bad)])
        assert store.counts() == {"pending": 0, "running": 2, "done": 0, "failed": 0, "dead": 0}
        assert list(store.items()) == []
        assert store.complete(first, second)

    def test_an_item_stays_one_line(self, store):
        store.enqueue(["page"])
        item = json.dumps({"text": "two\nlines", "n": [1, 2]}, indent=2)
        store.settle([Settlement.complete(store.claim()[0], items=[item])])
        (line,) = store.item_lines()
        assert "\n" not in line
        assert json.loads(line) == json.loads(item)

    def test_items_come_in_the_order_of_completion(self, store):
        store.enqueue(urls(1200))
        claims = store.claim(1200)[::-1]
        store.settle(Settlement.complete(claim, items=[f'"{claim}"', "0"]) for claim in claims)
        wanted = [part for claim in claims for part in (str(claim), 0)]
        assert list(store.items()) == wanted

    def test_short_forms_settle_several_and_tell_of_stale_ones(self, store):
        store.enqueue(urls(4))
        claims = store.claim()
        assert store.complete()
        assert store.release()
        assert store.complete(*claims[:2])
        assert not store.release(*claims[1:3])
        assert store.counts() == {"pending": 1, "running": 1, "done": 2, "failed": 0, "dead": 0}

    @pytest.mark.parametrize("number", [1, 2])
    @pytest.mark.parametrize(
        "settle",
        [
            lambda store, *claims: store.complete(*claims),
            lambda store, *claims: store.release(*claims),
            lambda store, *claims: any(store.fail(claim, "late") for claim in claims),
        ],
        ids=["complete", "release", "fail"],
    )
    def test_the_short_forms_change_nothing_of_what_another_worker_holds_now(
        self, store, other, clock, settle, number
    ):
        store.enqueue(urls(number))
        late = store.claim(lease_seconds=1)
        clock.advance(1)
        held = other.claim()
        assert len(held) == number
        assert not settle(store, *late)
        assert store.counts()["running"] == number
        assert store.outcomes() == {}
        assert other.renew(held) == held
        assert other.complete(*held)

    def test_settles_several_kinds_at_once(self, store):
        store.enqueue(urls(4))
        a, b, c, d = store.claim()
        settled = store.settle(
            [
                Settlement.release(a),
                Settlement.fail(b, "http 500"),
                Settlement.fail(c, "http 404", permanent=True),
                Settlement.complete(d, "empty"),
            ]
        )
        assert settled == ([a, b, c, d], [])
        assert store.counts() == {"pending": 1, "running": 0, "done": 1, "failed": 1, "dead": 1}
        assert store.outcomes() == {"empty": 1, "http 404": 1}


class TestFail:
    def test_a_key_is_retried_after_its_time_and_dead_after_its_last_attempt(self, backend, clock):
        policy = RetryPolicy(max_attempts=3, delay=100)
        with backend.open(clock=clock, policy=policy) as store:
            store.enqueue(["key"])
            for attempt in (1, 2):
                (claim,) = store.claim()
                assert claim.attempt == attempt
                assert store.fail(claim, "http 500")
                least, most = (75, 125) if attempt == 1 else (150, 250)
                assert least <= store.open_work().next_in <= most
                clock.advance(least - 1)
                assert store.claim() == []
                clock.advance(most - least + 1)
            (claim,) = store.claim()
            assert store.fail(claim, "http 503")
            assert store.counts() == {
                "pending": 0,
                "running": 0,
                "done": 0,
                "failed": 0,
                "dead": 1,
            }
            assert store.outcomes() == {"http 503": 1}
            clock.advance(10**6)
            assert store.claim() == []

    def test_the_caller_may_say_when(self, store, clock):
        store.enqueue(["key"])
        store.fail(store.claim()[0], "http 429", retry_in=7.5)
        assert store.open_work().next_in == 7.5
        clock.advance(7.5)
        assert store.claim() == ["key"]

    def test_at_once_is_a_time_too(self, store):
        store.enqueue(["key"])
        store.fail(store.claim()[0], "x", retry_in=0)
        assert store.open_work().next_in == 0
        assert store.claim()[0].attempt == 2

    @pytest.mark.parametrize("wait", [-1, float("nan"), float("inf")])
    def test_a_time_that_is_none_changes_nothing(self, store, wait):
        store.enqueue(["key"])
        claim = store.claim()[0]
        with pytest.raises(StoreError, match="retry"):
            store.fail(claim, "x", retry_in=wait)
        assert store.complete(claim)

    def test_a_permanent_failure_is_dead_at_once(self, store):
        store.enqueue(["key"])
        assert store.fail(store.claim()[0], "http 404", permanent=True)
        assert store.counts()["dead"] == 1
        assert not store.open_work()

    def test_what_fell_due_while_nobody_ran_is_due_at_once(self, backend, clock):
        with backend.open(clock=clock) as store:
            store.enqueue(["key"])
            store.fail(store.claim()[0], "x", retry_in=60)
        clock.advance(3600)
        with backend.open(clock=clock) as store:
            assert store.claim() == ["key"]

    def test_a_failed_key_keeps_its_place(self, store):
        store.enqueue(urls(3))
        store.fail(store.claim(1)[0], "x", retry_in=0)
        assert store.claim() == urls(3)


class TestRelease:
    def test_a_released_key_goes_back_to_its_place_as_if_never_claimed(self, store):
        store.enqueue([Work("a"), Work("b", priority=1), Work("c")])
        claims = store.claim()
        assert store.release(*claims)
        again = store.claim()
        assert again == claims
        assert [claim.attempt for claim in again] == [1, 1, 1]

    def test_it_keeps_the_attempts_that_failed(self, store):
        store.enqueue(["key"])
        store.fail(store.claim()[0], "x", retry_in=0)
        store.release(store.claim()[0])
        assert store.claim()[0].attempt == 2


class TestGroup:
    def test_calls_inside_see_each_other_and_stay(self, store, other):
        with store.group():
            store.enqueue(urls(3))
            claims = store.claim()
            store.complete(*claims[:2])
            assert store.counts()["done"] == 2
            assert other.counts()["done"] == 0
        assert other.counts()["done"] == 2

    def test_a_call_that_raises_undoes_only_itself(self, store):
        store.enqueue(urls(2))
        first, second = store.claim()
        with store.group():
            store.complete(first)
            with pytest.raises(InvalidKeyError):
                store.settle([Settlement.complete(second, discovered=[""])])
            store.bind_spider("a")
            with pytest.raises(StoreMismatchError):
                store.bind_spider("b")
            store.enqueue(["third"])
        assert store.counts() == {"pending": 1, "running": 1, "done": 1, "failed": 0, "dead": 0}

    def test_an_error_that_leaves_it_undoes_everything(self, store):
        store.enqueue(urls(2))
        with suppress(ZeroDivisionError), store.group():
            store.complete(*store.claim(1))
            store.enqueue(["third"])
            raise ZeroDivisionError
        assert store.counts()["pending"] == 2
        assert store.claim() == urls(2)

    def test_a_group_in_a_group_joins_it(self, store):
        with suppress(ZeroDivisionError), store.group():
            with store.group():
                store.enqueue(["key"])
            raise ZeroDivisionError
        assert store.counts()["pending"] == 0

    def test_the_first_claim_may_be_undone(self, store, other):
        store.enqueue(["key"])
        with suppress(ZeroDivisionError), store.group():
            store.claim()
            raise ZeroDivisionError
        (claim,) = store.claim()
        assert other.claim() == []
        assert store.complete(claim)

    def test_calls_of_other_threads_wait(self, store):
        counted = []
        thread = threading.Thread(target=lambda: counted.append(store.counts()["pending"]))
        with store.group():
            store.enqueue(["a"])
            thread.start()
            thread.join(0.2)
            assert not counted
            store.enqueue(["b"])
        thread.join(60)
        assert counted == [2]


class TestReading:
    def test_counts_are_of_this_shard_or_of_all(self, backend):
        with backend.open(ShardSpec(1, 3)) as store:
            store.enqueue(urls(30))
            owners = [stable_owner(url, 3) for url in urls(30)]
            assert store.counts()["pending"] == owners.count(1)
            assert store.counts(all_shards=True)["pending"] == 30
            assert [
                (shard, counts["pending"], counts["dead"]) for shard, counts in store.shard_counts()
            ] == [(shard, owners.count(shard), 0) for shard in range(3)]

    def test_outcomes_are_counted_by_their_first_line(self, store):
        store.enqueue(urls(4))
        for claim, outcome in zip(
            store.claim(), ["x" * 300, "x" * 200, "one\ntwo", ""], strict=True
        ):
            store.fail(claim, outcome, permanent=True)
        assert store.outcomes() == {"x" * 100: 2, "one": 1, "(no text)": 1}

    def test_text_that_no_database_takes_is_counted_too(self, store):
        store.enqueue(urls(2))
        first, second = store.claim()
        store.fail(first, "bad \ud800 byte\x00", permanent=True)
        store.fail(second, "bad \ud800 byte\x00")
        assert list(store.outcomes()) == ["bad \\ud800 byte\\x00"]

    def test_only_so_many_kinds_of_outcome_are_told_apart(self, store):
        store.enqueue(urls(250))
        for number, claim in enumerate(store.claim(250)):
            store.fail(claim, f"error {number}", permanent=True)
        outcomes = store.outcomes()
        assert len(outcomes) == 201
        assert outcomes["(other)"] == 50
        assert outcomes["error 199"] == 1

    def test_open_work_says_what_is_left_and_when(self, store, other, clock):
        assert not store.open_work()
        assert store.open_work() == (0, 0, 0, None, 0)
        store.enqueue(urls(3))
        assert store.open_work() == (3, 0, 0, 0.0, 0)
        store.claim(2, lease_seconds=30)
        assert store.open_work() == (1, 2, 0, 0.0, 0)
        (last,) = other.claim(lease_seconds=20)
        assert store.open_work() == (0, 3, 0, 20.0, 0)
        assert other.open_work() == (0, 3, 0, 20.0, 0)
        other.fail(last, "x", retry_in=5)
        assert store.open_work() == (0, 2, 1, 5.0, 0)
        clock.advance(5)
        assert store.open_work() == (0, 2, 1, 0.0, 0)
        assert other.claim(lease_seconds=3600) == [last]
        assert store.open_work() == (0, 3, 0, 25.0, 0)
        clock.advance(25)
        assert other.open_work() == (0, 3, 0, 0.0, 0)

    def test_its_own_lapsed_lease_is_worth_another_look_but_not_at_once(self, store, clock):
        store.enqueue(["key"])
        store.claim(lease_seconds=1)
        clock.advance(2)
        work = store.open_work()
        assert work
        assert work.next_in == 1.0

    def test_open_work_is_of_this_shard_only(self, backend):
        with backend.open(ShardSpec(0, 2)) as store:
            store.enqueue([url for url in urls(20) if stable_owner(url, 2) == 1])
            assert not store.open_work()


class TestIdentity:
    def test_another_shard_count_is_refused(self, backend):
        with backend.open(ShardSpec(0, 4)) as store:
            store.enqueue(["key"])
        with pytest.raises(StoreMismatchError, match=r"4 shards, not 3.*--shards 4"):
            backend.open(ShardSpec(0, 3))
        with backend.open(4) as store:
            assert store.counts()["pending"] == 1

    def test_the_count_is_taken_from_a_store_that_exists(self, backend):
        backend.open(ShardSpec(0, 4)).close()
        with backend.open(None) as store:
            assert len(store.shard_counts()) == 4
            store.enqueue(urls(5))
            assert store.counts()["pending"] == 5
            with pytest.raises(StoreError, match="shard"):
                store.claim()
            with pytest.raises(StoreError, match="shard"):
                store.open_work()

    def test_a_store_belongs_to_one_spider(self, backend):
        with backend.open() as store:
            store.bind_spider("shop")
            store.bind_spider("shop")
        with backend.open() as store:
            with pytest.raises(StoreMismatchError, match="'shop', not 'news'"):
                store.bind_spider("news")
            store.bind_spider("shop")

    def test_a_closed_store_says_so(self, backend):
        store = backend.open()
        store.close()
        store.close()
        for call in (store.counts, store.claim, store.heartbeat, lambda: store.enqueue(["key"])):
            with pytest.raises(StoreError, match="closed"):
                call()

    def test_what_was_stored_is_there_when_it_is_opened_again(self, backend):
        with backend.open() as store:
            store.enqueue(urls(3))
            done, _ = store.claim(2)
            store.settle([Settlement.complete(done, items=["1"])])
        with backend.open() as store:
            assert store.counts() == {"pending": 1, "running": 1, "done": 1, "failed": 0, "dead": 0}
            assert list(store.items()) == [1]

    def test_a_read_only_store_reads_and_refuses_to_write(self, backend):
        with backend.open() as store:
            store.enqueue(urls(3))
            with backend.open(None, readonly=True) as reader:
                assert reader.counts()["pending"] == 3
                store.complete(*store.claim(1))
                assert reader.counts()["done"] == 1
                for write in (lambda: reader.enqueue(["key"]), lambda: reader.bind_spider("a")):
                    with pytest.raises(StoreError, match="read-only"):
                        write()
        with backend.open(None, readonly=True) as reader:
            assert reader.counts()["done"] == 1


def test_a_worker_notes_what_becomes_of_it(store):
    store.register()
    store.heartbeat()
    store.stopping()
    store.end("finished")
    assert store.claim() == []


def test_threads_share_a_store(store):
    store.enqueue(urls(400))
    seen, errors = [], []

    def work():
        try:
            while claims := store.claim(7):
                errors.extend(claim for claim in claims if not store.complete(claim))
                seen.extend(claims)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert errors == []
    assert sorted(seen) == sorted(urls(400))
    assert store.counts()["done"] == 400
