"""Workers that die or fail, with and without restarts."""

from __future__ import annotations

import os
import re
import signal
import threading
import time

FINISH = "open+close=finished"
SETTLED = 'open+report={"event": "progress", "done": 1}'


def test_a_killed_worker_is_not_started_again_by_default(launch, worker):
    run = launch("--shards", "2", "--", *worker, "open", "until-term", "close=finished")
    run.wait_for("ready", 2)
    os.kill(run.workers()[0], signal.SIGKILL)
    run.wait_for("shard 0: failed")
    run.signal(signal.SIGTERM)
    assert run.end() == 143
    assert "shard 0 failed: its process ended with SIGKILL." in run.text
    assert len(run.workers()) == 2


def test_the_others_go_on_when_one_is_killed_and_the_run_fails(launch, worker, tmp_path):
    run = launch("--shards", "2", "--", *worker, "open", "until-term", "close=finished")
    run.wait_for("ready", 2)
    os.kill(run.workers()[0], signal.SIGKILL)
    run.wait_for("shard 0: failed")
    os.kill(run.workers()[1], signal.SIGTERM)  # the fake's way to finish
    assert run.end() == 1
    assert "shard 1: finished, exit 0" in run.text


def test_a_killed_worker_is_started_again_when_asked(launch, worker, tmp_path):
    script = f"life={tmp_path}/{{shard}}:open+until-term;{FINISH}"
    run = launch("--shards", "2", "--max-restarts", "1", "--", *worker, script)
    run.wait_for("ready", 2)
    for pid in run.workers():
        os.kill(pid, signal.SIGKILL)
    assert run.end() == 0
    assert run.text.count("SIGKILL; starts again in") == 2
    assert len(run.workers()) == 4


def test_a_worker_that_does_not_finish_is_started_again(launch, worker, tmp_path):
    script = f"life={tmp_path}/{{shard}}:open+close=shards_missing;{FINISH}"
    assert launch("--shards", "1", "--max-restarts", "1", "--", *worker, script).end() == 0


def test_a_worker_that_a_restart_cannot_mend_is_not_started_again(launch, worker):
    run = launch("--shards", "1", "--max-restarts", "9", "--", *worker, "open", "close=no_request")
    assert run.end() == 1
    assert len(run.workers()) == 1
    assert "It is not started again: it would meet the same key again." in run.text


def test_a_worker_is_not_started_again_to_wait_for_shards_that_were_given_up(
    launch, worker, tmp_path
):
    dies = 'test "$CRAWL_SHARD" = 0 && exec "$0" "$1" open die; exec "$0" "$@"'
    words = ("open", f"wait={tmp_path}/given-up", "close=shards_missing")
    options = ("--shards", "2", "--max-restarts", "1")
    run = launch(*options, "--", "sh", "-c", dies, *worker, *words)
    run.wait_for("shard 0: failed")
    (tmp_path / "given-up").touch()
    assert run.end() == 1
    assert run.text.count("shard 1: started") == 1
    assert "nobody is left in this run to crawl the missing shards." in run.text


def test_lives_without_progress_are_limited_and_progress_starts_the_count_anew(
    launch, worker, tmp_path
):
    lives = [SETTLED + "+die"] * 3 + ["open+die"] * 2 + [SETTLED + "+die"] + ["open+die"] * 9
    run = launch(
        "--shards",
        "1",
        "--max-restarts",
        "2",
        "--",
        *worker,
        f"life={tmp_path}/lives:{';'.join(lives)}",
    )
    assert run.end() == 1
    assert len(run.workers()) == 3 + 2 + 1 + 3


def test_a_worker_that_fails_to_boot_is_given_up_after_three_lives(launch, worker):
    run = launch("--shards", "1", "--max-restarts", "50", "--", *worker, "exit=1")
    assert run.end() == 1
    assert len(run.workers()) == 3
    assert "it fails to boot" in run.text


def test_nothing_is_started_again_once_a_stop_was_asked(launch, worker, tmp_path):
    run = launch(
        "--shards", "1", "--max-restarts", "9", "--", *worker, "open", "until-term", "exit=1"
    )
    run.wait_for("ready")
    run.signal(signal.SIGINT)
    assert run.end() == 130
    assert len(run.workers()) == 1


def test_a_stop_while_a_restart_is_due_ends_the_run(launch, worker):
    run = launch("--shards", "1", "--max-restarts", "40", "--", *worker, "open", "die")
    run.wait_for("starts again in", 4)  # by now the next one takes seconds
    run.signal(signal.SIGTERM)
    assert run.end() == 143
    assert len(run.workers()) == 4


def test_a_stop_while_the_rest_of_a_failed_worker_is_swept_starts_nothing(launch, worker):
    todo = ("child=until-term=9", "until-term", "exit=1")
    run = launch("--shards", "1", "--max-restarts", "9", "--grace", "600", "--", *worker, *todo)
    run.wait_for("ready", 2)
    os.kill(run.workers()[0], signal.SIGTERM)
    run.wait_for("heard SIGTERM 1", 2)  # the worker, and as it has ended its child
    run.signal(signal.SIGTERM)
    run.signal(signal.SIGINT)
    run.wait_for("heard SIGTERM 2")
    run.signal(signal.SIGINT)
    assert run.end() == 143
    assert len(run.workers()) == 1


def test_workers_killed_all_the_time_get_their_work_done(launch, worker, tmp_path):
    # Each life settles a little; only the twelfth finishes.
    lives = [SETTLED + "+until-term"] * 11 + [FINISH]
    run = launch(
        "--shards",
        "3",
        "--max-restarts",
        "3",
        "--",
        *worker,
        f"life={tmp_path}/{{shard}}:{';'.join(lives)}",
    )
    ended = threading.Event()

    def kill() -> None:
        killed: set[str] = set()
        while not ended.is_set():
            for pid in set(re.findall(r"ready (\d+)", run.text)) - killed:
                os.kill(int(pid), signal.SIGKILL)
                killed.add(pid)
            time.sleep(0.02)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        assert run.process.wait(120) == 0, run.text
    finally:
        ended.set()
        killer.join()
    assert run.end() == 0
    assert len(run.workers()) == 36


def test_a_failure_stops_the_others_when_asked(launch, worker, tmp_path):
    script = f"life={tmp_path}/{{shard}}:open+until-term+close=shutdown"
    run = launch("--shards", "3", "--fail-fast", "--", *worker, script)
    run.wait_for("ready", 3)
    os.kill(run.workers()[1], signal.SIGKILL)
    assert run.end() == 1
    assert "--fail-fast: stopping all, as shard 1 failed." in run.text
    assert run.text.count("heard SIGTERM 1") == 2


def test_a_failure_that_is_mended_by_a_restart_stops_nobody(launch, worker, tmp_path):
    script = f"life={tmp_path}/{{shard}}:open+die;{FINISH}"
    options = ("--shards", "2", "--fail-fast", "--max-restarts", "1")
    run = launch(*options, "--", *worker, script)
    assert run.end() == 0
    assert "--fail-fast" not in run.text


def test_the_first_ctrl_c_after_a_failure_that_stops_all_is_no_second_one(launch, worker, tmp_path):
    script = f"life={tmp_path}/{{shard}}:open+until-term=2+close=shutdown"
    run = launch("--shards", "2", "--fail-fast", "--grace", "600", "--", *worker, script)
    run.wait_for("ready", 2)
    os.kill(run.workers()[0], signal.SIGKILL)
    run.wait_for("heard SIGTERM 1")
    run.signal(signal.SIGINT)
    run.wait_for("SIGINT: the workers are being stopped already.")
    assert "heard SIGTERM 2" not in run.text
    run.signal(signal.SIGINT)
    assert run.end() == 1
    assert "heard SIGTERM 2" in run.text
