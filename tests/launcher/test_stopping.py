"""Stopping a run: keys, signals, a closed terminal, and workers that do not want to."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

OBEDIENT = ("open", "until-term", "close=shutdown")


def test_one_ctrl_c_asks_each_worker_once_and_ends_with_130(launch_on_terminal, worker):
    terminal = launch_on_terminal("--shards", "3", "--", *worker, *OBEDIENT)
    terminal.launcher.wait_for("ready", 3)
    terminal.press_ctrl_c()
    assert terminal.launcher.end() == 130
    assert terminal.launcher.text.count("heard SIGTERM 1") == 3
    assert "heard SIGTERM 2" not in terminal.launcher.text
    assert "stopped, exit 0" in terminal.launcher.text
    assert "killed" not in terminal.launcher.text


def test_a_second_ctrl_c_asks_again(launch_on_terminal, worker):
    terminal = launch_on_terminal("--shards", "2", "--", *worker, "open", "until-term=2")
    terminal.launcher.wait_for("ready", 2)
    terminal.press_ctrl_c()
    terminal.launcher.wait_for("heard SIGTERM 1", 2)
    terminal.press_ctrl_c()
    assert terminal.launcher.end() == 130
    assert terminal.launcher.text.count("heard SIGTERM 2") == 2
    assert "were killed" not in terminal.launcher.text


def test_a_third_ctrl_c_kills_what_ignores_the_others(launch_on_terminal, worker):
    terminal = launch_on_terminal("--shards", "2", "--", *worker, "open", "until-term=9")
    terminal.launcher.wait_for("ready", 2)
    for heard in (1, 2):
        terminal.press_ctrl_c()
        terminal.launcher.wait_for(f"heard SIGTERM {heard}", 2)
    terminal.press_ctrl_c()
    assert terminal.launcher.end() == 130
    assert "processes of shards 0-1 did not stop in time and were killed" in terminal.launcher.text
    assert terminal.launcher.text.count("SIGKILL") >= 2


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_a_signal_to_the_launcher_stops_the_workers(launch, worker, number, code):
    run = launch("--shards", "2", "--", *worker, *OBEDIENT)
    run.wait_for("ready", 2)
    run.signal(number)
    assert run.end() == code
    assert run.text.count("heard SIGTERM 1") == 2


def test_further_hangups_and_terms_do_not_press_a_worker(launch, worker):
    run = launch("--shards", "1", "--", *worker, "open", "until-term", "until-term=2")
    run.wait_for("ready")
    run.signal(signal.SIGTERM)
    run.wait_for("heard SIGTERM 1")
    run.signal(signal.SIGHUP)
    run.signal(signal.SIGTERM)
    run.signal(signal.SIGINT)
    assert run.end() == 143
    assert run.text.count("heard SIGTERM 2") == 1
    assert "were killed" not in run.text


def test_a_closed_terminal_stops_the_workers(launch_on_terminal, worker, tmp_path, until):
    logs = [tmp_path / f"shard-000{shard}.log" for shard in range(2)]
    options = ("--shards", "2", "--log-dir", str(tmp_path))
    terminal = launch_on_terminal(*options, "--", *worker, *OBEDIENT, read=False)
    until(lambda: all(log.exists() and "ready" in log.read_text() for log in logs))
    terminal.close()
    assert terminal.launcher.end() == 129
    for log in logs:
        assert log.read_text().count("heard SIGTERM") == 1
        assert _groups_are_empty([int(log.read_text().split()[1])])


def test_a_worker_is_asked_again_at_four_fifths_of_the_grace_time_and_then_killed(launch, worker):
    run = launch("--shards", "1", "--grace", "1.5", "--", *worker, "open", "until-term=9")
    run.wait_for("ready")
    run.signal(signal.SIGTERM)
    assert run.end() == 143
    assert "heard SIGTERM 2" in run.text
    assert "heard SIGTERM 3" not in run.text
    assert "processes of shard 0 did not stop in time and were killed" in run.text


def test_a_worker_stopped_while_it_still_imports_is_no_failure(launch):
    run = launch("--shards", "2", "--", sys.executable, "-c", "import time; time.sleep(600)")
    run.wait_for("started as process", 2)
    run.signal(signal.SIGTERM)
    assert run.end() == 143
    assert "failed" not in run.text.replace("done  failed", "")


def test_what_a_wrapper_started_is_stopped_gently_before_the_launcher_ends(launch, worker):
    script = '"$@"; true'
    patient = ("--grace", "600")
    run = launch(
        "--shards", "2", *patient, "--", "bash", "-c", script, "wrapper", *worker, "argv", *OBEDIENT
    )
    run.wait_for("ready", 2)
    run.signal(signal.SIGTERM)
    assert run.end() == 143
    assert run.text.count("heard SIGTERM 1") == 2
    assert "heard SIGTERM 2" not in run.text
    assert _groups_are_empty(run.workers())


def test_a_grandchild_that_ignores_everything_is_killed_with_its_group(launch, worker):
    run = launch("--shards", "1", "--grace", "1", "--", *worker, "child=until-term=9", *OBEDIENT)
    run.wait_for("ready", 2)
    run.signal(signal.SIGTERM)
    assert run.end() == 143
    assert _groups_are_empty(run.workers())


def test_what_a_finished_worker_left_behind_is_swept(launch, worker):
    todo = ("child=until-term", "open", "close=finished")
    run = launch("--shards", "1", "--grace", "600", "--", *worker, *todo)
    assert run.end() == 0
    assert _groups_are_empty(run.workers())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a group holds")
def test_a_group_of_zombies_alone_holds_nothing_up_and_is_not_called_unkillable(launch, script):
    run = launch("--shards", "1", "--grace", "600", "--", *script("daemon.py"))
    try:
        assert run.process.wait(60) == 0
    finally:
        run.wait_for("daemon")
        os.kill(int(re.search(r"daemon (\d+)", run.text)[1]), signal.SIGKILL)
    assert run.end() == 0
    assert "kill" not in run.text
    assert "outside its group still holds the output" in run.text


def test_workers_that_watch_the_lifeline_end_when_the_launcher_is_killed(launch, worker, until):
    run = launch("--shards", "3", "--", *worker, *OBEDIENT)
    run.wait_for("ready", 3)
    run.signal(signal.SIGKILL)
    assert run.process.wait(60) == -signal.SIGKILL
    killed = time.monotonic()
    until(lambda: _groups_are_empty(run.workers()))
    assert time.monotonic() - killed < 5
    assert len(run.workers()) == 3


def test_a_stopped_launcher_loses_no_signal(launch, worker):
    run = launch("--shards", "2", "--", *worker, *OBEDIENT)
    run.wait_for("ready", 2)
    run.signal(signal.SIGSTOP)
    run.signal(signal.SIGTERM)
    run.signal(signal.SIGCONT)
    assert run.end() == 143


def test_a_hangup_that_nohup_ignores_stays_ignored(launch, worker):
    run = launch("--shards", "1", "--", *worker, *OBEDIENT, wrap=("nohup",))
    run.wait_for("ready")
    run.signal(signal.SIGHUP)
    run.signal(signal.SIGTERM)
    assert run.end() == 143


def test_blocked_signals_are_heard_all_the_same(launch, worker, script):
    run = launch("--shards", "1", "--", *worker, *OBEDIENT, wrap=script("deaf.py"))
    run.wait_for("ready")
    run.signal(signal.SIGTERM)
    assert run.end() == 143


def _groups_are_empty(leaders):
    """Whether nothing of them runs; a zombie waits for somebody else."""
    states = subprocess.run(
        ["ps", "-A", "-o", "pgid=,stat="], capture_output=True, text=True, check=True
    )
    running = {int(line.split()[0]) for line in states.stdout.splitlines() if " Z" not in line}
    return not running & set(leaders)


def test_with_no_worker_running_a_stop_says_so(launch, worker):
    run = launch("--shards", "1", "--max-restarts", "40", "--", *worker, "open", "die")
    run.wait_for("starts again in", 5)  # by now the next one takes seconds
    run.signal(signal.SIGTERM)
    assert run.end() == 143
    assert "SIGTERM: stopping no workers." in run.text


GO_ON = "Keys are left: the same command goes on where this run was stopped.\n"


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"keys": 9, "open": 4}, True),
        ({"released": 2}, True),
        ({"keys": 9, "open": 0}, False),
        ({}, False),  # no store
    ],
)
def test_a_run_that_was_stopped_ends_with_how_to_go_on_if_keys_are_left(launch, worker, told, says):
    report = "report=" + json.dumps({"event": "progress", **told})
    closed = "report=" + json.dumps({"event": "closed", "reason": "shutdown", **told})
    run = launch("--shards", "1", "--", *worker, "open", report, "until-term", closed)
    run.wait_for("ready")
    run.signal(signal.SIGTERM)
    assert run.end() == 143
    assert run.text.endswith(GO_ON) is says
    assert (GO_ON in run.text) is says


def test_a_run_that_ends_by_itself_does_not_speak_of_going_on(launch, worker):
    report = json.dumps({"event": "closed", "reason": "store_error", "keys": 9, "open": 4})
    run = launch("--shards", "1", "--", *worker, "open", f"report={report}")
    assert run.end() == 1
    assert GO_ON not in run.text
