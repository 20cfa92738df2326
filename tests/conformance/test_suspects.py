"""Keys under which workers die: worked on alone, and given up when that goes wrong as well."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from scrapy_hexshard import RetryPolicy, Settlement, ShardSpec, Work, stable_owner

SOON = RetryPolicy(max_deaths=1, max_lone_deaths=1)


@pytest.fixture
def die(backend, clock, dead):
    """Let workers claim and die, one after another; what the last of them claimed."""

    def die(limit=100, times=1, **options):
        for _ in range(times):
            with backend.open(clock=clock, identity=dead, **options) as worker:
                claims = worker.claim(limit)
        return claims

    return die


def shown(claims):
    return [(str(claim), claim.lone) for claim in claims]


def notice(store):
    """Have the deaths noticed, as they are at a first claim, by a worker with its own limits."""
    store.release(*store.claim())


def counted(store, **states):
    return store.counts() == {
        state: states.get(state, 0) for state in ("pending", "running", "done", "failed", "dead")
    }


class TestClaim:
    def test_a_key_is_an_ordinary_one_until_it_has_max_deaths(self, store, die):
        store.enqueue(["a", "b", "c"])
        die(2)
        assert shown(store.claim()) == [("a", False), ("b", False), ("c", False)]

    def test_a_suspect_comes_last_and_alone_whatever_the_limit(self, store, die):
        store.enqueue(["a", "b", "c"])
        assert die(2, times=2) == ["a", "b"]
        assert shown(store.claim(10)) == [("c", False)]
        assert store.claim(10) == []
        store.complete(*store.claim(10))
        assert counted(store, pending=2, running=1)

    def test_it_goes_to_a_worker_that_holds_nothing(self, store, other, die):
        store.enqueue(["a", "b", "c"])
        die(1, times=2)
        held = store.claim(10)
        assert held == ["b", "c"]
        store.complete(held[0])
        assert store.claim() == []
        assert shown(other.claim()) == [("a", True)]
        store.complete(held[1])
        assert store.claim() == []

    def test_a_lapsed_lease_of_its_own_is_something_it_holds(self, store, die, clock):
        store.enqueue(["a", "b"])
        die(1, times=2)
        (own,) = store.claim(1, lease_seconds=1)
        clock.advance(2)
        assert store.claim() == []
        store.complete(own)
        assert shown(store.claim()) == [("a", True)]

    def test_as_long_as_a_worker_holds_a_suspect_it_gets_nothing_else(self, store, other, die):
        store.enqueue(["a", "b"])
        die(2, times=2)
        (suspect,) = store.claim()
        store.enqueue(["new"])
        assert store.claim() == []
        assert store.renew([suspect]) == [suspect]
        assert store.claim() == []
        assert shown(other.claim()) == [("new", False)]
        store.complete(suspect)
        assert shown(store.claim()) == [("b", True)]

    def test_its_lease_may_lapse_meanwhile(self, store, die, clock):
        store.enqueue(["a"])
        die(times=2)
        (suspect,) = store.claim(lease_seconds=1)
        clock.advance(2)
        store.enqueue(["new"])
        assert store.claim() == []
        assert store.complete(suspect)
        assert store.claim() == ["new"]

    def test_another_worker_may_settle_it_for_the_one_that_holds_it(self, store, other, die):
        store.enqueue(["a", "b"])
        die(times=2)
        (suspect,) = store.claim()
        assert other.complete(suspect)
        assert store.claim() == ["b"]

    def test_two_workers_may_each_have_one(self, store, other, die):
        store.enqueue(["a", "b"])
        die(times=2)
        assert shown(store.claim()) == [("a", True)]
        assert shown(other.claim()) == [("b", True)]

    def test_the_one_that_was_tried_least_recently_goes_first(self, store, die, clock):
        store.enqueue(["a", "b", "c"])
        die(times=2)
        for suspect in ("a", "b", "c", "a"):
            clock.advance(1)
            assert die() == [suspect]
        clock.advance(1)
        store.release(*store.claim())
        clock.advance(1)
        assert store.claim() == ["c"]

    def test_of_those_tried_at_one_time_the_highest_priority_goes_first(self, store, die):
        store.enqueue(["a", Work("b", priority=1), Work("c", priority=2), "d"])
        die(times=2)
        notice(store)
        store.enqueue([Work("d", priority=3)])
        claims = [(claim, claim.priority) for claim in self.drained(store)]
        assert claims == [("d", 3), ("c", 2), ("b", 1), ("a", 0)]

    def drained(self, store):
        while claims := store.claim():
            assert len(claims) == 1
            yield claims[0]
            store.complete(*claims)

    def test_it_takes_a_payload_and_a_priority_as_other_pending_keys_do(self, store, die):
        store.enqueue([Work("a", "1", 1), Work("b", "1")])
        die(times=2)
        notice(store)
        assert store.enqueue([Work("b", '"new"', 2), Work("a", priority=0)]) == 0
        claims = [(claim, claim.payload, claim.priority) for claim in self.drained(store)]
        assert claims == [("b", '"new"', 2), ("a", "1", 1)]

    def test_parked_keys_are_nothing_that_its_worker_holds(self, store, die):
        store.enqueue(["a", "b", "c"])
        die(2, times=2)
        store.park(store.claim())
        for suspect in ("a", "b"):
            claims = store.claim()
            assert shown(claims) == [(suspect, True)]
            assert store.claim() == []
            store.park(claims)
        assert counted(store, running=3)

    def test_suspects_of_other_shards_stay_where_they_are(self, backend, die):
        keys = [str(n) for n in range(20)]
        mine = [key for key in keys if stable_owner(key, 2) == 0]
        with backend.open(ShardSpec(1, 2)) as store:
            store.enqueue(mine)
            die(times=2, shards=ShardSpec(0, 2))
            assert not store.open_work()
            assert store.claim() == []


class TestDeaths:
    def test_lone_deaths_make_it_dead(self, store, die, backend, clock):
        store.enqueue(["a", "b"])
        die(times=2)
        store.complete(*store.claim())
        for _ in range(3):
            assert die() == ["b"]
            assert counted(store, running=1, done=1)
        with backend.open(clock=clock) as last:
            assert last.claim() == []
            assert list(last.condemned) == ["b"]
        assert counted(store, done=1, dead=1)
        assert store.outcomes() == {"done": 1, "worker died": 1}
        assert not store.open_work()

    def test_its_neighbours_in_flight_are_cleared_by_their_completion(self, backend, clock, dead):
        keys = [str(n) for n in range(16)]
        lives = 0
        left = True
        while left:
            lives += 1
            with backend.open(clock=clock, identity=dead) as worker:
                worker.enqueue(keys)
                while (claims := worker.claim()) and keys[5] not in claims:
                    worker.complete(*claims)
                left = worker.open_work()
                outcomes, condemned = worker.outcomes(), list(worker.condemned)
        assert outcomes == {"done": 15, "worker died": 1}
        assert condemned == [keys[5]]
        assert lives == 6

    def test_other_ends_of_a_claim_are_no_deaths(self, store, die, clock, backend, dead):
        policy = RetryPolicy(max_attempts=6, max_deaths=1, max_lone_deaths=1)
        store.enqueue(["a"])
        die(policy=policy)
        with backend.open(clock=clock, policy=policy) as store:
            for attempt in range(1, 6):
                (claim,) = store.claim()
                assert (claim.attempt, claim.lone) == (attempt, True)
                store.release(claim)
                (claim,) = store.claim()
                store.fail(claim, "http 500", retry_in=5)
                assert store.claim() == []
                clock.advance(5)
            with backend.open(clock=clock, policy=policy, identity=dead) as told:
                assert shown(told.claim()) == [("a", True)]
                told.stopping()
        with backend.open(clock=clock, policy=policy) as store:
            (claim,) = store.claim()
            assert (claim.attempt, claim.lone) == (6, True)
            store.fail(claim, "http 500")
            assert store.outcomes() == {"http 500": 1}

    def test_a_death_is_none_of_a_parked_key(self, backend, store, clock, dead):
        store.enqueue(["a", "b"])
        for _ in range(3):
            with backend.open(clock=clock, identity=dead) as worker:
                worker.park([claim for claim in worker.claim() if claim == "a"])
        assert shown(store.claim()) == [("a", False)]
        assert counted(store, pending=1, running=1)

    def test_a_lapsed_lease_of_a_parked_key_is_none(self, backend, store, other, clock):
        store.enqueue(["a"])
        for worker in (store, other, store, other):
            (claim,) = worker.claim(lease_seconds=1)
            assert not claim.lone
            worker.park([claim])
            clock.advance(1)

    def test_who_claims_a_parked_key_next_has_it_in_flight(self, backend, store, clock, dead):
        store.enqueue(["a"])
        with backend.open(clock=clock, identity=dead) as worker:
            worker.park(worker.claim(lease_seconds=1))
            clock.advance(1)
            for _ in range(2):
                with backend.open(clock=clock, identity=dead) as heir:
                    assert shown(heir.claim(lease_seconds=1)) == [("a", False)]
                clock.advance(1)
        assert shown(store.claim()) == [("a", True)]

    def test_a_death_is_no_lone_one_of_a_parked_suspect(self, backend, die, clock, dead):
        with backend.open(clock=clock, policy=SOON) as store:
            store.enqueue(["a"])
            die(policy=SOON)
            for _ in range(3):
                with backend.open(clock=clock, policy=SOON, identity=dead) as worker:
                    claims = worker.claim()
                    assert shown(claims) == [("a", True)]
                    worker.park(claims)
            assert shown(store.claim()) == [("a", True)]

    def test_parked_keys_are_settled_as_others(self, store):
        store.enqueue(["a", "b", "c"])
        a, b, c = store.claim()
        store.park([a, b, c])
        assert store.renew([a]) == [a]
        store.complete(a)
        store.park([a])
        store.fail(b, "feed: OSError", retry_in=0)
        store.release(c)
        assert counted(store, done=1, failed=1, pending=1)
        assert shown(store.claim()) == [("b", False), ("c", False)]

    def test_only_claims_are_parked(self, store):
        store.enqueue(["a"])
        with pytest.raises(TypeError, match="Claim"):
            store.park(["a"])

    def test_a_failed_suspect_is_one_again_when_it_is_due(self, store, die, clock):
        store.enqueue(["a", "b"])
        die(times=2)
        (suspect,) = store.claim()
        store.fail(suspect, "http 500", retry_in=5)
        clock.advance(5)
        assert shown(store.claim()) == [("b", True)]
        store.release(*store.claim())

    def test_a_lapsed_lease_is_one_and_a_suspect_not_leased_in_passing(self, store, other, clock):
        store.enqueue(["a", "b"])
        for worker in (store, other):
            assert shown(worker.claim(1, lease_seconds=1)) == [("a", False)]
            clock.advance(1)
        assert shown(store.claim()) == [("b", False)]
        assert counted(store, pending=1, running=1)
        assert shown(other.claim()) == [("a", True)]

    def test_a_lapsed_lone_lease_is_a_lone_death(self, backend, clock):
        with (
            backend.open(clock=clock, policy=SOON) as store,
            backend.open(clock=clock, policy=SOON) as other,
        ):
            store.enqueue(["a", "b"])
            (lost,) = store.claim(1, lease_seconds=1)
            clock.advance(1)
            (b,) = other.claim()
            other.complete(b)
            assert shown(other.claim(lease_seconds=1)) == [("a", True)]
            clock.advance(1)
            other.stopping()
            assert shown(store.claim()) == [("a", True)], "it had been told to stop"
            clock.advance(1000)
            assert other.claim() == []
            assert counted(store, done=1, dead=1)
            assert (list(store.condemned), list(other.condemned)) == ([], ["a"])
            assert not store.complete(lost)

    def test_a_condemned_key_stays_dead_and_its_worker_is_late(self, backend, store, clock, die):
        store.enqueue(["a"])
        (late,) = die(policy=SOON)
        (later,) = die(policy=SOON)
        with backend.open(clock=clock, policy=SOON) as last:
            assert last.claim() == []
            assert last.settle(map(Settlement.complete, [late, later])) == ([], [late, later])
            assert last.enqueue([Work("a", '"new"', 9)]) == 0
            assert counted(last, dead=1)

    def test_an_undone_claim_condemns_nothing(self, backend, clock, die):
        with backend.open(clock=clock, policy=SOON) as store:
            store.enqueue(["a"])
            die(policy=SOON, times=2)
            with suppress(ZeroDivisionError), store.group():
                assert store.claim() == []
                assert list(store.condemned) == ["a"]
                raise ZeroDivisionError
            assert list(store.condemned) == []
            assert counted(store, running=1)
            assert store.claim() == []
            assert list(store.condemned) == ["a"]


class TestOtherLimits:
    """A store is opened with other limits than before."""

    def test_a_suspect_is_claimed_alone_though_the_limit_is_higher_now(
        self, backend, store, clock, die
    ):
        store.enqueue(["a"])
        die(times=2)
        notice(store)
        with backend.open(clock=clock, policy=RetryPolicy(max_deaths=5)) as store:
            (claim,) = store.claim()
            assert (claim, claim.lone) == ("a", True)
            store.enqueue(["b"])
            store.release(claim)
            assert shown(store.claim()) == [("a", False), ("b", False)]

    def test_and_each_of_its_deaths_alone_still_counts(self, backend, store, clock, die):
        generous = RetryPolicy(max_deaths=50)
        store.enqueue(["a"])
        die(times=2)
        notice(store)
        assert shown(die(policy=generous)) == [("a", True)]
        # It is an ordinary one again, with one lone death.
        assert shown(die(policy=generous)) == [("a", False)]
        die(times=2)
        with backend.open(clock=clock, policy=generous) as store:
            assert store.claim() == []
            assert store.outcomes() == {"worker died": 1}

    def test_a_lone_death_that_lapses_counts_then_too(self, backend, clock, store, die):
        generous = RetryPolicy(max_deaths=50, max_lone_deaths=1)
        store.enqueue(["a"])
        die(times=2)
        notice(store)
        with (
            backend.open(clock=clock, policy=generous) as frozen,
            backend.open(clock=clock, policy=generous) as store,
        ):
            assert shown(frozen.claim(lease_seconds=1)) == [("a", True)]
            clock.advance(1)
            assert store.claim() == []
            assert list(store.condemned) == ["a"]

    def test_a_ready_key_above_a_lower_limit_is_claimed_once_more_as_others_are(
        self, backend, store, clock, die
    ):
        store.enqueue(["a", "b"])
        die(1)
        notice(store)
        with backend.open(clock=clock, policy=SOON) as store:
            claims = store.claim()
            assert shown(claims) == [("a", False), ("b", False)]
            store.release(*claims)
            assert shown(store.claim()) == [("b", False)]

    def test_a_lone_lease_that_lapses_is_leased_in_passing_as_an_ordinary_one(
        self, backend, clock, store, die
    ):
        generous = RetryPolicy(max_deaths=50)
        store.enqueue(["a"])
        die(times=2)
        notice(store)
        with (
            backend.open(clock=clock, policy=generous) as frozen,
            backend.open(clock=clock, policy=generous) as store,
        ):
            assert shown(frozen.claim(lease_seconds=1)) == [("a", True)]
            clock.advance(1)
            store.enqueue(["b"])
            assert shown(store.claim(1)) == [("a", False)]
            assert shown(store.claim(1)) == [("b", False)]

    def test_lone_deaths_above_a_lower_limit_do_not_condemn_without_another(
        self, backend, store, clock, die, dead
    ):
        store.enqueue(["a"])
        die(times=4)
        notice(store)
        with backend.open(clock=clock, policy=SOON, identity=dead) as told:
            (claim,) = told.claim()
            assert claim.lone
            told.release(claim)
            told.fail(*told.claim(), "http 500", retry_in=0)
            assert shown(told.claim()) == [("a", True)]
            told.stopping()
        assert shown(die(policy=SOON)) == [("a", True)]
        with backend.open(clock=clock, policy=SOON) as store:
            assert store.claim() == []
            assert store.outcomes() == {"worker died": 1}


class TestOpenWork:
    def test_suspects_are_pending_and_may_be_had_at_once(self, store, die):
        store.enqueue(["a", "b"])
        die(times=2)
        store.complete(*store.claim())
        assert store.open_work() == (1, 0, 0, 0.0, 0)

    def test_a_worker_that_holds_something_need_not_ask_for_them_at_once(
        self, store, other, die, clock
    ):
        store.enqueue(["a", "b", "c"])
        die(1, times=2)
        b, _ = store.claim(lease_seconds=60)
        assert store.claim() == []
        assert store.open_work() == (1, 2, 0, 1.0, 0)
        assert other.open_work() == (1, 2, 0, 0.0, 0)
        store.fail(b, "http 500", retry_in=0.25)
        assert store.open_work() == (1, 1, 1, 0.25, 0)
        store.enqueue(["d"])
        assert store.open_work() == (2, 1, 1, 0.0, 0)

    def test_a_worker_that_holds_a_suspect_has_to_settle_it_first(self, store, die, clock):
        store.enqueue(["a", "b", "late"])
        die(2, times=2)
        (late,) = store.claim(1)
        store.fail(late, "http 500", retry_in=0.25)
        store.claim(lease_seconds=60)
        assert store.open_work() == (1, 1, 1, 1.0, 0)
        clock.advance(1)
        store.enqueue(["ready"])
        assert store.claim() == []
        assert store.open_work() == (2, 1, 1, 1.0, 0)

    def test_its_own_lease_is_all_that_it_waits_for_then(self, store, die):
        store.enqueue(["a"])
        die(times=2)
        store.claim(lease_seconds=60)
        assert store.open_work() == (0, 1, 0, 60.0, 0)


def test_threads_that_share_a_store_obey_the_rule_too(store, die):
    store.enqueue(f"suspect {n}" for n in range(8))
    die(times=2)
    store.enqueue(f"other {n}" for n in range(40))
    in_hand, together, errors = set(), [], []
    lock, pause = threading.Lock(), threading.Event()

    def take(claims):
        with lock:
            in_hand.update(claims)
            if any(claim.lone for claim in in_hand) and len(in_hand) > 1:
                together.append(set(in_hand))

    def work():
        try:
            while left := store.open_work():
                claims = store.claim(3)
                take(claims)
                pause.wait(0.002 if claims else min(left.next_in, 0.002))
                with lock:
                    in_hand.difference_update(claims)
                store.complete(*claims)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert errors == []
    assert together == []
    assert store.counts()["done"] == 48
