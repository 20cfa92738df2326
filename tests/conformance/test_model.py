"""Any order of calls by several workers, compared step by step with the model."""

from __future__ import annotations

import itertools
import tempfile
from contextlib import suppress
from pathlib import Path

from conformance.model import Model
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from scrapy_hexshard import RetryPolicy, Settlement, Work

# Mostly limits that are soon reached; and workers whose limits differ, as after a change of them.
POLICIES = st.builds(
    RetryPolicy,
    max_attempts=st.just(3),
    delay=st.just(0),
    max_deaths=st.sampled_from([1, 1, 2, 3]),
    max_lone_deaths=st.sampled_from([1, 2]),
)
WORKS = st.builds(
    Work,
    st.sampled_from([f"https://shop.example/p/{n}" for n in range(30)]),
    st.none() | st.sampled_from(["1", "2"]),
    st.integers(-1, 1),
)
OTHER_POLICIES = st.none() | st.none() | POLICIES
LEASES = st.sampled_from([1, 5, 30])
CLAIMS = st.lists(st.tuples(st.integers(1, 6), LEASES), min_size=1, max_size=3)
DEATHS = st.sampled_from(["dead", "dead", "dead", "frozen", "told to stop"])
OUTCOMES = st.sampled_from(["http 500", "spider: KeyError"])
ENDS = st.one_of(
    st.builds(
        lambda items, found: {"kind": "complete", "items": items, "discovered": found},
        st.lists(st.sampled_from(['"a"', '"b"']), max_size=2),
        st.lists(WORKS, max_size=2),
    ),
    st.builds(
        lambda outcome, wait, permanent: {
            "kind": "fail",
            "outcome": outcome,
            "retry_in": wait,
            "permanent": permanent,
        },
        OUTCOMES,
        st.sampled_from([None, 0, 3, 40]),
        st.sampled_from([False, False, True]),
    ),
    st.just({"kind": "release"}),
)


class Worker:
    """An open store; one whose process *is_dead* may still call, as a frozen one would later."""

    def __init__(self, store, policy, is_dead):
        self.store = store
        self.policy = policy
        self.is_dead = is_dead
        self.told_to_stop = False
        self.has_claimed = False
        self.condemned = []


class StoreMachine(RuleBasedStateMachine):
    def __init__(self, new_backend, clock, dead):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.backend = new_backend(Path(self.folder.name))
        self.clock = clock
        self.dead = dead
        self.model = Model()
        self.workers = []
        self.gone = []
        self.claims = []

    def teardown(self):
        for worker in self.workers:
            worker.store.close()
        self.folder.cleanup()

    def open(self, is_dead, policy=None):
        policy = policy or self.policy
        identity = self.dead if is_dead else None
        store = self.backend.open(clock=self.clock, policy=policy, identity=identity)
        self.workers.append(Worker(store, policy, is_dead))
        return self.workers[-1]

    def worker(self, data):
        return data.draw(st.sampled_from(self.workers))

    @initialize(policy=POLICIES, works=st.lists(WORKS, min_size=2, max_size=8))
    def first_worker(self, policy, works):
        self.policy = policy
        worker = self.open(False)
        assert worker.store.enqueue(works) == self.model.enqueue(works)

    @precondition(lambda self: len(self.workers) < 4)
    @rule(is_dead=st.booleans(), policy=OTHER_POLICIES)
    def start(self, is_dead, policy):
        self.open(is_dead, policy)

    @precondition(lambda self: len(self.workers) > 1)
    @rule(data=st.data())
    def stop(self, data):
        self.leave(self.worker(data))

    def leave(self, worker):
        worker.store.close()
        self.workers.remove(worker)
        self.gone.append(worker)

    @rule(claims=CLAIMS, deaths=st.lists(DEATHS, min_size=1, max_size=3), policy=OTHER_POLICIES)
    def live_and_die(self, claims, deaths, policy):
        """Workers that claim and are not heard of again, one after the other."""
        for death in deaths:
            worker = self.open(death != "frozen", policy)
            self.claim_as(worker, claims)
            if death == "told to stop":
                self.tell_to_stop(worker)
            self.leave(worker)

    @rule(data=st.data())
    def be_told_to_stop(self, data):
        self.tell_to_stop(self.worker(data))

    def tell_to_stop(self, worker):
        worker.store.stopping()
        worker.told_to_stop = True

    @rule(seconds=st.sampled_from([1, 4, 31]))
    def wait(self, seconds):
        self.clock.advance(seconds)

    @rule(data=st.data(), works=st.lists(WORKS, max_size=6))
    def enqueue(self, data, works):
        assert self.worker(data).store.enqueue(works) == self.model.enqueue(works)

    @rule(data=st.data(), claims=CLAIMS)
    def claim(self, data, claims):
        self.claim_as(self.worker(data), claims)

    def claim_as(self, worker, claims):
        for limit, lease in claims:
            self.claim_once(worker, limit, lease)

    def claim_once(self, worker, limit, lease):
        if not worker.has_claimed:
            worker.has_claimed = True
            others = [other for other in self.workers + self.gone if other is not worker]
            dead = [other for other in others if other.is_dead]
            self.model.take_back(worker, dead, self.clock())
        claims = worker.store.claim(limit, lease)
        assert claims == self.model.claim(worker, limit, lease, self.clock())
        assert claims or worker.store.open_work().next_in != 0, "to ask again at once is in vain"
        for claim in claims:
            entry = self.model.entries[claim]
            assert (claim.attempt, claim.payload, claim.priority, claim.lone) == (
                entry.attempts + 1,
                entry.payload,
                entry.priority,
                entry.lone,
            )
            entry.token = claim.token
        self.claims += claims

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), lease=LEASES)
    def renew(self, data, lease):
        claims = data.draw(st.lists(st.sampled_from(self.claims), max_size=4, unique_by=id))
        kept = [claim for claim in claims if self.model.held(claim, claim.token)]
        assert self.worker(data).store.renew(claims, lease) == kept
        for claim in kept:
            entry = self.model.entries[claim]
            entry.at = max(entry.at, self.clock() + lease)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def park(self, data):
        claims = data.draw(st.lists(st.sampled_from(self.claims[-8:]), max_size=4, unique_by=id))
        self.worker(data).store.park(claims)
        for claim in claims:
            self.model.park(claim)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def settle(self, data):
        recent = st.sampled_from(self.claims[-8:])
        chosen = data.draw(st.lists(st.tuples(recent, ENDS), min_size=1, max_size=5))
        settlements = [settlement(claim, **end) for claim, end in chosen]
        worker = self.worker(data)
        applied, stale, discovered = [], [], []
        for each in settlements:
            if self.model.settle(worker, each, self.clock()):
                applied.append(each.claim)
                discovered += each.discovered
            else:
                stale.append(each.claim)
        self.model.discover(discovered)
        settled = worker.store.settle(settlements)
        assert [claim.token for claim in settled.applied] == [claim.token for claim in applied]
        assert [claim.token for claim in settled.stale] == [claim.token for claim in stale]

    @rule(data=st.data(), works=st.lists(WORKS, max_size=3), limit=st.integers(0, 4))
    def undo(self, data, works, limit):
        store = self.worker(data).store
        with suppress(ZeroDivisionError), store.group():
            store.enqueue(works)
            store.complete(*store.claim(limit))
            raise ZeroDivisionError

    @invariant()
    def counters_are_true(self):
        for worker in self.workers:
            counts = self.model.counts()
            assert worker.store.counts() == counts
            work = worker.store.open_work()
            assert work[:3] == (counts["pending"], counts["running"], counts["failed"])
            assert work.next_in == self.model.next_in(worker, self.clock())
            assert sorted(worker.store.condemned) == sorted(worker.condemned)

    @invariant()
    def ends_are_stored(self):
        for worker in itertools.islice(self.workers, 1):
            assert list(worker.store.item_lines()) == self.model.items
            assert worker.store.outcomes() == self.model.outcomes


def settlement(claim, kind, **values):
    return getattr(Settlement, kind)(claim, **values)


def test_every_store_does_what_the_model_does(new_backend, clock, dead):
    run_state_machine_as_test(
        lambda: StoreMachine(new_backend, clock, dead),
        settings=settings(
            max_examples=50,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
