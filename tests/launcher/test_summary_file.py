"""The summary of a run as JSON."""

from __future__ import annotations

import json
import os
import signal
import stat

import pytest

TOTALS = '{"event": "progress", "done": 3, "dead": 1, "items": 5, "pages": 9}'


def test_it_tells_what_the_table_does_and_each_life(launch, worker, tmp_path):
    file = tmp_path / "summary.json"
    file.write_text("of an earlier run")
    script = f"life={tmp_path}/{{shard}}:open+report={TOTALS}+die;open+close=finished"
    options = ("--max-restarts", "1", "--summary-json", str(file))
    run = launch("--shards", "2", *options, "--", *worker, script)
    assert run.end() == 0
    summary = json.loads(file.read_text())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [(each["exit"], each["reason"]) for each in summary["workers"][1]["lives"]] == [
        ("SIGKILL", None),
        ("exit 0", "finished"),
    ]
    assert summary["workers"][0]["shard"] == 0
    assert summary["workers"][0]["state"] == "finished"
    assert summary["workers"][0]["done"] == 6
    assert {name: summary[name] for name in ("exit_code", "stopped_by", "shards", "done")} == {
        "exit_code": 0,
        "stopped_by": None,
        "shards": 2,
        "done": 12,
    }
    assert summary["pages"] == 18
    assert summary["notes"] == [
        "Keys given up in this run: 2. See why with: hexdigest-shard status STORE"
    ]
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".")]


def test_a_run_that_was_stopped_says_by_what(launch, worker, tmp_path):
    file = tmp_path / "summary.json"
    run = launch("--shards", "1", "--summary-json", str(file), "--", *worker, "until-term")
    run.wait_for("ready")
    run.signal(signal.SIGTERM)
    assert run.end() == 143
    summary = json.loads(file.read_text())
    assert (summary["exit_code"], summary["stopped_by"]) == (143, "SIGTERM")
    assert summary["workers"][0]["state"] == "stopped"


def test_a_failed_worker_says_why(launch, worker, tmp_path):
    file = tmp_path / "summary.json"
    assert launch("--shards", "1", "--summary-json", str(file), "--", *worker, "exit=3").end() == 1
    summary = json.loads(file.read_text())
    assert summary["exit_code"] == 1
    assert summary["workers"][0]["why"] == "its process ended with exit 3"


@pytest.mark.parametrize("place", ["nowhere/summary.json", "."])
def test_a_file_that_cannot_be_written_starts_nothing(launch, worker, tmp_path, place):
    run = launch("--shards", "1", "--summary-json", str(tmp_path / place), "--", *worker)
    assert run.end() == 2
    assert "Cannot write" in run.text
    assert not run.workers()


def test_a_file_of_an_earlier_run_does_not_outlive_the_start(launch, worker, tmp_path):
    file = tmp_path / "summary.json"
    file.write_text("of an earlier run")
    run = launch("--shards", "1", "--summary-json", str(file), "--", *worker, "until-term")
    run.wait_for("ready")
    assert not file.exists()
    run.signal(signal.SIGTERM)
    run.end()


def test_a_summary_that_cannot_be_written_at_the_end_is_a_failure(launch, worker, tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    todo = ("open", "until-term", "close=finished")
    run = launch("--shards", "1", "--summary-json", f"{folder}/summary.json", "--", *worker, *todo)
    run.wait_for("ready")
    folder.rmdir()
    os.kill(run.workers()[0], signal.SIGTERM)
    assert run.end() == 1
    assert "shard  lives" in run.text
    assert "Cannot write" in run.text.splitlines()[-1]


def test_a_pipe_is_written_to(launch, worker):
    run = launch("--shards", "1", "--summary-json", "/dev/stderr", "--", *worker)
    assert run.end() == 0
    assert '"exit_code": 0' in run.text
