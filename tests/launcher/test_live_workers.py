"""What is seen of the workers, and the picture and the sentence made of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from scrapy_hexshard.launcher.live_pace import Progress
from scrapy_hexshard.launcher.live_table import Cell, Tone
from scrapy_hexshard.launcher.live_workers import Observer
from scrapy_hexshard.launcher.reports import Extent, Totals
from scrapy_hexshard.launcher.verdict import Life, Verdict, judge


@dataclass
class Seen:
    """A worker as it may be found."""

    shard: int = 0
    lives: list[Life] = field(default_factory=list)
    start_at: float | None = None
    alive: bool = True
    opened: bool = True
    stopping: bool = False
    running: int = 8
    extent: Extent | None = None
    totals: Totals = field(default_factory=Totals)

    @property
    def verdict(self) -> Verdict:
        return judge(self.lives)


GOOD = Life(0, reported=True, finished=True, reason="finished")
KILLED = Life(-9, reported=True)


def gone(*lives: Life, **more: object) -> Seen:
    return Seen(lives=list(lives), alive=False, opened=False, running=0, **more)


def look(*workers: Seen, seconds: int = 60):
    """What is seen after *seconds* in which each worker got another page a second."""
    observer = Observer(workers)
    for second in range(seconds + 1):
        for worker in workers:
            if worker.alive:
                worker.totals = Totals(done=second // 2, pages=second, running=worker.running)
        sight = observer.look(float(second))
    return sight


@pytest.mark.parametrize(
    ("worker", "state", "error"),
    [
        (Seen(alive=False, opened=False, start_at=0.0), "waiting", ""),
        (Seen(opened=False), "started", ""),
        (Seen(), "running", ""),
        (Seen(stopping=True), "stopping", ""),
        (Seen(lives=[KILLED]), "running", "SIGKILL"),
        (gone(KILLED, start_at=9.0), "restarting", "SIGKILL"),
        (gone(KILLED), "failed", "SIGKILL"),
        (gone(Life(3)), "failed", "exit 3"),
        (gone(Life(None)), "failed", "no exit"),
        (gone(Life(0, reported=True, reason="store_error")), "failed", "store_error"),
        (gone(Life(0, reported=True)), "failed", "no reason given"),
        (
            gone(Life(0, reported=True, finished=True, totals=Totals(dead=3, faults=2))),
            "failed",
            "it completed no key, and 2 ended in an error",
        ),
        (gone(GOOD), "finished", ""),
        (gone(), "stopped", ""),
        (gone(Life(0, reported=True, reason="shutdown", told_to_stop=True)), "stopped", ""),
        (gone(Life(-15, told_to_stop=True)), "stopped", ""),
        (gone(Life(-9, told_to_stop=True, forced=True)), "stopped", "SIGKILL"),
        (Seen(lives=[Life(0, reported=True, reason="\x1b[2Jx")]), "running", " [2Jx"),
    ],
)
def test_the_state_and_the_last_error_of_a_worker(worker, state, error):
    (shard,) = look(worker).shards
    assert (shard.state, shard.error) == (state, error)


def test_restarts_are_the_lives_after_the_first():
    workers = [Seen(alive=False), Seen(), gone(KILLED), Seen(lives=[KILLED]), gone(KILLED, KILLED)]
    assert [shard.restarts for shard in look(*workers).shards] == [0, 0, 0, 1, 1]


def test_a_worker_that_makes_no_page_for_a_minute_stalls_and_the_crawl_goes_on():
    workers = [Seen(shard=0), Seen(shard=1), Seen(shard=2, running=0)]
    observer = Observer(workers)
    for second in range(61):
        workers[0].totals = Totals(pages=second)
        sight = observer.look(float(second))
    assert [shard.state for shard in sight.shards] == ["running", "stalled", "running"]
    assert not sight.progress.stalled


def test_the_rate_is_one_of_the_living():
    finished = gone(GOOD, totals=Totals(done=5, pages=99))
    assert [shard.per_minute for shard in look(Seen(), finished).shards] == [60.0, None]


def test_the_progress_is_that_of_all_shards_together():
    workers = [Seen(extent=Extent(500, 400)), Seen(extent=Extent(300, 200))]
    assert look(*workers).progress == Progress(
        seconds=60.0,
        ended=60,
        keys=800,
        open=600,
        per_minute=pytest.approx(61.0, abs=1),
        eta=pytest.approx(600.0, abs=10),
    )


def test_the_number_of_keys_is_unknown_until_every_shard_has_told_it():
    progress = look(Seen(extent=Extent(500, 400)), Seen()).progress
    assert (progress.keys, progress.open, progress.eta) == (None, None, None)


def test_a_row_a_shard_with_its_tones():
    sight = look(Seen(shard=0), Seen(shard=1, lives=[KILLED]), gone(KILLED, shard=2))
    zero, none, error = Cell("0", Tone.QUIET), Cell("-", Tone.QUIET), Cell("SIGKILL")
    working = [Cell("running"), Cell("8"), Cell("30"), zero, zero, Cell("60")]
    failed = [Cell("failed", Tone.BAD), zero, zero, zero, zero, none, zero]
    assert sight.picture(24).rows == [
        [Cell("0"), *working, zero, Cell("")],
        [Cell("1"), *working, Cell("1", Tone.CARE), error],
        [Cell("2"), *failed, error._replace(tone=Tone.BAD)],
    ]
    assert [cell.text for cell in sight.picture(24).total] == [
        *("total", "", "16", "60", "0", "0", "120", "1", "")
    ]


def test_a_group_names_the_worst_first_and_whose_error_it_was():
    workers = [Seen(shard=shard) for shard in range(64)]
    workers[5] = gone(KILLED, shard=5)
    workers[6] = Seen(shard=6, lives=[Life(1)])
    workers[9] = gone(GOOD, shard=9)
    rows = look(*workers).picture(60).rows
    assert len(rows) == 16
    assert [[cell.text for cell in row] for row in rows[:3]] == [
        ["0-3", "4 running", "32", "120", "0", "0", "240", "0", ""],
        ["4-7", "1 failed, 3 running", "24", "90", "0", "0", "180", "1", "5: SIGKILL, 6: exit 1"],
        ["8-11", "3 running, 1 finished", "24", "90", "0", "0", "180", "0", ""],
    ]
    assert [row[1].tone for row in rows[:3]] == [Tone.PLAIN, Tone.BAD, Tone.PLAIN]


def test_the_sentence_says_how_many_work_and_how_many_failed():
    workers = [Seen(), Seen(), gone(KILLED), gone(GOOD, totals=Totals(done=2, dead=3))]
    assert look(*workers).sentence() == (
        "0:01:00: 65 keys ended, 61 a minute, 3 of them dead in this run, 2 of 4 workers running, "
        "1 failed."
    )
