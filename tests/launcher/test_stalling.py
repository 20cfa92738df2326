"""Workers that get nowhere."""

from __future__ import annotations

import os
import signal
import time

import pytest

from scrapy_hexshard.launcher.stall import PULSE_SECONDS, Pulse, StallWatch

FINISH = "open+close=finished"
HANGS = 'open+report={"event": "progress", "done": 1, "running": 2}+until-term+close=shutdown'
STALL = ("--shards", "1", "--stall-timeout", "3")


def test_a_worker_that_makes_no_progress_is_stopped_and_started_again(launch, worker, tmp_path):
    run = launch(*STALL, "--", *worker, f"life={tmp_path}/lives:{HANGS};{FINISH}")
    assert run.end() == 0
    assert "shard 0: stopping it, as it makes no progress." in run.text
    assert "it made no progress and was stopped; starts again in" in run.text
    assert run.text.count("heard SIGTERM") == 1
    assert len(run.workers()) == 2


def test_one_that_stalls_again_without_a_key_in_between_is_given_up(launch, worker, tmp_path):
    hangs = 'open+report={"event": "progress", "running": 2}+until-term+die'
    run = launch(*STALL, "--", *worker, f"life={tmp_path}/lives:{hangs}")
    assert run.end() == 1
    assert len(run.workers()) == 2
    assert "shard 0 failed: it made no progress and was stopped." in run.text


def test_one_whose_loop_no_longer_turns_is_killed_after_the_grace_time(launch, worker, tmp_path):
    script = f"life={tmp_path}/lives:open+say=idle+until-term;{FINISH}"
    run = launch(*STALL, "--grace", "0.5", "--", *worker, script)
    run.wait_for("ready")
    os.kill(run.workers()[0], signal.SIGSTOP)
    assert run.end() == 0
    assert "Killed, as they did not stop in time: processes of shard 0." in run.text


def test_one_that_hangs_before_it_opens_a_spider_is_stopped_too(launch, worker, tmp_path):
    run = launch(*STALL, "--", *worker, f"life={tmp_path}/lives:until-term+exit=0;{FINISH}")
    assert run.end() == 0
    assert len(run.workers()) == 2


def test_one_that_waits_with_nothing_to_do_is_left_alone(launch, worker):
    run = launch(*STALL, "--", *worker, "open", "beat=5", "close=finished")
    assert run.end() == 0
    assert len(run.workers()) == 1


def test_a_stop_of_the_run_while_one_is_stopped_for_stalling_is_a_stop(launch, worker):
    hangs = ("open", 'report={"event": "progress", "running": 2}', "until-term=2", "exit=0")
    run = launch(*STALL, "--grace", "600", "--", *worker, *hangs)
    run.wait_for("heard SIGTERM 1")
    run.signal(signal.SIGINT)
    run.wait_for("stopping 1 worker.")
    run.signal(signal.SIGINT)
    assert run.end() == 130
    assert "failed" not in run.text.partition("shard  lives")[0]


@pytest.mark.parametrize(
    ("signs", "over_at"),
    [
        ([], 110.0),
        ([(104.0, 0, False)], 114.0),  # the first report of a life is one
        ([(104.0, 0, False), (108.0, 0, False)], 114.0),
        ([(104.0, 0, False), (108.0, 1, False)], 118.0),
        ([(104.0, 1, False), (108.0, 1, True)], 118.0),
    ],
)
def test_the_time_counts_from_the_last_progress(signs, over_at):
    watch = StallWatch(10.0)
    watch.begin(100.0)
    for now, moves, idle in signs:
        watch.look(now, moves, idle=idle)
    assert watch.next_at() == over_at
    assert watch.is_over(over_at)
    assert not watch.is_over(over_at - 0.1)


def test_without_a_timeout_nothing_stalls():
    watch = StallWatch(None)
    watch.begin(0.0)
    assert watch.next_at() is None
    assert not watch.is_over(1e9)


@pytest.mark.parametrize("stopped_too", [False, True])
def test_a_launcher_that_was_stopped_does_not_take_that_for_a_stall(launch, worker, stopped_too):
    run = launch(*STALL, "--", *worker, "open", "say=ready", "beat=8", "close=finished")
    run.wait_for("ready")
    stopped = [run.process.pid, *(run.workers() if stopped_too else [])]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(5)  # longer than the stall time-out
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    assert run.end() == 0
    assert len(run.workers()) == 1
    assert "no progress" not in run.text


def test_time_in_which_nobody_watched_is_left_out():
    watch = StallWatch(10.0)
    watch.begin(100.0)
    watch.postpone(7.0)
    assert watch.next_at() == 117.0


def test_a_pulse_that_is_late_tells_for_how_long_there_was_none():
    pulse = Pulse()
    beats = [100.0, 100.5, 100.5 + PULSE_SECONDS, 110.0, 110.1]
    assert [pulse.beat(now) for now in beats] == [0.0, 0.0, 0.0, 8.5, 0.0]
