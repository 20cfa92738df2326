"""The pure rules: reports, verdicts, restarts, the ladder and the table at the end."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_hexshard.launcher.ladder import UNKILLABLE_SECONDS, Ladder, Stage
from scrapy_hexshard.launcher.reports import Extent, Fault, Reports, Totals
from scrapy_hexshard.launcher.restarts import Restarts
from scrapy_hexshard.launcher.summary import run_seconds, summarize
from scrapy_hexshard.launcher.summary_file import summary_facts
from scrapy_hexshard.launcher.verdict import Life, State, exit_name, judge

GOOD = Life(returncode=0, reported=True, finished=True, reason="finished", totals=Totals(done=1))


def lines(*reports: dict[str, object]) -> bytes:
    return b"".join(json.dumps(report).encode() + b"\n" for report in reports)


OPENED = {"event": "opened", "pid": 1}


def closed(reason: str = "finished", **totals: int) -> dict[str, object]:
    return {"event": "closed", "reason": reason, **totals}


def test_totals_are_those_of_the_last_report():
    reports = Reports()
    reports.feed(
        lines(OPENED, {"event": "progress", "done": 2}, {"event": "progress", "done": 5, "new": 1})
    )
    assert reports.totals == Totals(done=5)
    assert reports.heard
    assert not reports.finished


def test_spiders_run_one_after_the_other_add_up_and_must_all_finish():
    reports = Reports()
    reports.feed(
        lines(OPENED, closed(done=2), OPENED, closed("shutdown", done=3), OPENED, closed(done=4))
    )
    assert reports.totals == Totals(done=9)
    assert (reports.reason, reports.finished) == ("shutdown", False)


def test_a_spider_that_never_closed_leaves_its_worker_unfinished():
    reports = Reports()
    reports.feed(lines(OPENED, closed(), OPENED))
    assert not reports.finished


@given(st.lists(st.integers(1, 30), max_size=20))
def test_reports_may_arrive_in_any_pieces(sizes):
    data = lines(OPENED, {"event": "progress", "done": 3}, closed(done=4, items=4))
    reports = Reports()
    at = 0
    for size in sizes:
        reports.feed(data[at : at + size])
        at += size
    reports.feed(data[at:])
    assert (reports.totals, reports.finished, reports.unreadable) == (
        Totals(done=4, items=4),
        True,
        0,
    )


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        b"[]",
        b"\xff",
        b"[" * 4000,
        b'{"event": "closed"}',
        b'{"event": 3}',
        b"x" * 9999,
    ],
)
def test_what_is_no_report_is_counted(line):
    reports = Reports()
    reports.feed(line + b"\n")
    reports.feed(lines(OPENED))
    assert (reports.unreadable, reports.heard) == (1, True)


@pytest.mark.parametrize(
    ("lives", "state"),
    [
        ([], State.STOPPED),
        ([GOOD], State.FINISHED),
        ([Life(0)], State.FINISHED),
        ([Life(1)], State.FAILED),
        ([Life(-9), GOOD], State.FINISHED),
        ([GOOD, Life(-9)], State.FAILED),
        ([Life(None)], State.FAILED),
        ([Life(-15, told_to_stop=True)], State.STOPPED),
        ([Life(0, reported=True, reason="shutdown", told_to_stop=True)], State.STOPPED),
        ([Life(0, reported=True, reason="shutdown")], State.FAILED),
        ([Life(0, reported=True)], State.FAILED),
        ([Life(0, reported=True, finished=True, totals=Totals(faults=1))], State.FAILED),
        ([Life(0, reported=True, finished=True, totals=Totals(dead=1))], State.FINISHED),
        ([Life(-9, reported=True, totals=Totals(faults=1)), GOOD], State.FINISHED),
        (
            [Life(-9, totals=Totals(done=1)), Life(0, True, True, totals=Totals(faults=1))],
            State.FINISHED,
        ),
    ],
)
def test_a_worker_is_judged_by_its_last_life_and_the_sum_of_all(lives, state):
    verdict = judge(lives)
    assert verdict.state is state
    assert bool(verdict.why) == (state is State.FAILED)


@pytest.mark.parametrize(
    ("returncode", "name"),
    [(0, "exit 0"), (3, "exit 3"), (-9, "SIGKILL"), (-15, "SIGTERM"), (-99, "signal 99")],
)
def test_an_exit_is_named(returncode, name):
    assert exit_name(returncode) == name


def test_a_process_that_never_ran_is_not_judged_by_an_exit_code():
    never_ran = Life(None)
    assert judge([never_ran]).why == "its process could not be started"
    assert judge([Life(None, given_up=True)]).why == "its process could not be killed"
    assert "exit code" not in summarize([Shard(0, [never_ran])])


DIED = Life(-9, reported=True)
SETTLED = Life(-9, reported=True, totals=Totals(failed=1))


def restarts(allowed: int, max_delay: float = 60.0) -> Restarts:
    return Restarts(allowed, max_delay, jitter=lambda: 1.0)


def test_without_restarts_allowed_there_is_none_even_after_progress():
    assert restarts(0).delay_after(SETTLED) is None


def test_the_delay_doubles_to_its_maximum_and_starts_anew_with_progress():
    policy = restarts(100, max_delay=3.0)
    assert [policy.delay_after(DIED) for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert policy.delay_after(SETTLED) == 0.25


@given(st.integers(1, 1000), st.integers(1, 1200), st.floats(0, 1))
def test_the_delay_is_never_more_than_its_maximum(allowed, lives, jitter):
    policy = Restarts(allowed, 60.0, jitter=lambda: jitter)
    delays = [policy.delay_after(DIED) for _ in range(lives)]
    given_out = [delay for delay in delays if delay is not None]
    assert len(given_out) == min(allowed, lives)
    assert all(0 < delay <= 60 for delay in given_out)


def test_a_finished_or_stopped_worker_is_not_started_again():
    assert restarts(9).delay_after(GOOD) is None
    assert restarts(9).delay_after(Life(0)) is None
    assert restarts(9).delay_after(Life(-15, told_to_stop=True)) is None


def test_three_boots_in_a_row_that_fail_are_the_last():
    policy = restarts(99)
    assert [policy.delay_after(Life(1)) is None for _ in range(3)] == [False, False, True]
    assert policy.hopeless == "it fails to boot"


@dataclass
class Peer:
    """Another worker."""

    active: bool
    lives: list[Life] = field(default_factory=list)


def test_a_key_that_nobody_can_request_is_met_again_in_every_life():
    policy = restarts(99)
    assert policy.delay_after(Life(0, reported=True, reason="no_request")) is None
    assert policy.hopeless == "it would meet the same key again"


RUNS, WAITS = Peer(active=True), Peer(active=True, lives=[DIED])
FINISHED, GIVEN_UP = Peer(active=False, lives=[GOOD]), Peer(active=False, lives=[DIED])


@pytest.mark.parametrize(
    ("others", "again"),
    [
        ([], True),  # another launcher may have the rest
        ([RUNS, FINISHED], True),
        ([WAITS], True),
        ([Peer(active=False), RUNS], False),
        ([GIVEN_UP, RUNS], False),
        ([FINISHED, FINISHED], False),
    ],
)
def test_a_worker_that_misses_other_shards_comes_again_while_somebody_may_crawl_them(others, again):
    policy = restarts(99)
    life = Life(0, reported=True, reason="shards_missing")
    assert (policy.delay_after(life, others) is not None) is again
    assert (policy.hopeless is None) is again


def test_without_restarts_nothing_is_said_of_why_there_is_none():
    policy = restarts(0)
    policy.delay_after(Life(0, reported=True, reason="no_request"))
    assert policy.hopeless is None


@pytest.mark.parametrize("life", [Life(-9), Life(1, seconds=61.0), Life(1, reported=True)])
def test_being_killed_or_running_on_is_no_failure_to_boot(life):
    policy = restarts(99)
    assert all(policy.delay_after(life) is not None for _ in range(9))


def test_the_ladder_climbs_by_the_clock():
    ladder = Ladder(grace=10)
    assert (list(ladder.climb(0)), ladder.next_at()) == ([], None)
    ladder.begin(100)
    ladder.begin(105)  # changes nothing
    reached = {}
    now = 100.0
    while ladder.next_at() is not None:
        now = ladder.next_at()
        reached.update(dict.fromkeys(ladder.climb(now), now))
    assert reached == {
        Stage.ASKED: 100,
        Stage.PRESSED: 108,
        Stage.KILLED: 110,
        Stage.GIVEN_UP: 110 + UNKILLABLE_SECONDS,
    }


def test_each_push_makes_the_next_stage_due_but_none_gives_up():
    ladder = Ladder(grace=1000)
    ladder.begin(0)
    stages = [list(ladder.climb(0))]
    for _ in range(4):
        ladder.push()
        stages.append(list(ladder.climb(0)))
    assert stages == [[Stage.ASKED], [Stage.PRESSED], [Stage.KILLED], [], []]


@given(st.floats(0, 100), st.lists(st.floats(0, 50) | st.none(), max_size=20))
def test_no_stage_is_left_out_or_done_twice(grace, steps):
    ladder = Ladder(grace)
    ladder.begin(0)
    now, seen = 0.0, []
    for step in steps:
        if step is None:
            ladder.push()
        else:
            now += step
        seen += ladder.climb(now)
    assert seen == list(Stage)[1 : len(seen) + 1]


@dataclass
class Shard:
    shard: int
    lives: list[Life] = field(default_factory=list)
    extent: Extent | None = None

    @property
    def totals(self):
        return sum((life.totals for life in self.lives), Totals())

    @property
    def verdict(self):
        return judge(self.lives)


def test_the_commonest_fault_of_several_lives_is_that_of_most_attempts_together():
    counts = [("spider: KeyError", 1_000), ("http 500", 700), ("http 500", 700), None]
    lives = [
        Life(0, True, True, totals=Totals(faults=1), fault=Fault(*each) if each else None)
        for each in counts
    ]
    assert judge(lives).why.endswith("4 ended in an error; most often: http 500 (1,400 times)")
    assert judge(lives[-1:]).why.endswith("1 ended in an error")


@pytest.mark.parametrize(
    "told", [{"fault": ["x"], "fault_times": 1}, {"fault": "x"}, {"fault": "x", "fault_times": -1}]
)
def test_a_fault_that_makes_no_sense_is_left_out(told):
    reports = Reports()
    reports.feed(lines(OPENED, {**closed("finished"), **told}))
    assert (reports.fault, reports.finished) == (None, True)


def test_of_several_spiders_the_commonest_fault_counts():
    reports = Reports()
    for times in (2, 5, 3):
        told = {"fault": f"http 50{times}", "fault_times": times}
        reports.feed(lines(OPENED, {**closed("finished"), **told}))
    reports.feed(lines(OPENED, closed("finished")))
    assert reports.fault == Fault("http 505", 5)


def test_the_table_at_the_end():
    workers = [
        Shard(0, [Life(-9, True, totals=Totals(done=5, items=5, pages=12), seconds=3), GOOD]),
        Shard(1, [Life(1, seconds=3725.4)]),
        Shard(2, [Life(0, True, True, "finished", Totals(faults=2, dead=2))]),
        Shard(3, [Life(-9, told_to_stop=True, forced=True)]),
        Shard(4, []),
        Shard(5, [Life(0)]),
    ]
    assert summarize(workers) == (
        "shard  lives     exit    reason  done  failed  dead  items  pages/min     time\n"
        "    0      2   exit 0  finished     6       0     0      5        240    3.0 s\n"
        "    1      1   exit 1         -     0       0     0      0          0  1:02:05\n"
        "    2      1   exit 0  finished     0       0     2      0          -    0.0 s\n"
        "    3      1  SIGKILL         -     0       0     0      0          -    0.0 s\n"
        "    4      0  not run         -     0       0     0      0          -    0.0 s\n"
        "    5      1   exit 0         -     0       0     0      0          -    0.0 s\n"
        "total      6                        6       0     2      5          0  1:02:05\n"
        "shard 1 failed: its process ended with exit 1.\n"
        "shard 2 failed: it completed no key, and 2 ended in an error.\n"
        "Killed, as they did not stop in time: processes of shard 3. What they had open is crawled "
        "when the shard is next started.\n"
        "Judged by exit code alone, as no report came: shard 5. A Scrapy worker reports if the "
        "HexShardAddon is enabled.\n"
        "Keys given up in this run: 2. See why with: hexdigest-shard status STORE\n"
    )


def test_a_worker_of_several_that_crawled_another_shard_than_its_own_has_failed():
    life = Life(returncode=0, reported=True, finished=True, wrong_shard=1)
    verdict = judge([life])
    assert verdict.state is State.FAILED
    assert "it crawled shard 1 in the place of its own" in verdict.why


def test_the_time_of_the_run_goes_from_its_first_start_to_its_last_end():
    pages = Totals(pages=60)
    workers = [
        Shard(0, [Life(0, totals=pages, started_at=100.0, seconds=10.0)]),
        Shard(1, [Life(-9, started_at=130.0, seconds=5.0), Life(0, started_at=150.0, seconds=10)]),
        Shard(2, []),
    ]
    assert run_seconds(workers) == 60.0
    total = next(line for line in summarize(workers).splitlines() if line.startswith("total"))
    assert total.split()[-2:] == ["60", "0:01:00"]
    facts = summary_facts(workers, 0, None)
    assert (facts["seconds"], facts["pages_per_minute"]) == (60.0, 60.0)
    assert facts["workers"][1]["seconds"] == 15.0
