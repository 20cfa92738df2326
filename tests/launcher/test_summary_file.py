"""The summary of a run as JSON."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys

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


@pytest.mark.parametrize(
    ("words", "environ"),
    [
        (("--", "true"), {"PROXY_URL_0": "nonsense"}),
        (("--", "no-such-command-here"), {}),
        (("--",), {}),
        ((), {}),
        (("--check-proxies", "--", "true"), {"PROXY_URL_0": "http://127.0.0.1:1"}),
        (("--check-proxies", "nonsense", "--", "true"), {}),
        (("--log-dir", "/dev/null/logs", "--", "true"), {}),
    ],
)
def test_no_start_that_fails_leaves_the_file_of_an_earlier_run(launch, tmp_path, words, environ):
    file = tmp_path / "summary.json"
    file.write_text("of an earlier run")
    run = launch("--shards", "1", "--summary-json", str(file), *words, environ=environ)
    assert run.end() > 0
    assert not file.exists()


def test_a_dry_run_leaves_it_alone(launch, tmp_path):
    file = tmp_path / "summary.json"
    file.write_text("of an earlier run")
    words = ("--summary-json", str(file), "--dry-run", "--", "true")
    assert launch("--shards", "1", *words).end() == 0
    assert file.read_text() == "of an earlier run"


RUN = (sys.executable, "-m", "scrapy_hexshard", "run", "--shards", "1", "--summary-json")


# Not /dev/stdout itself: as root, a launcher with a fault would replace that of the whole machine.
# The link that the test makes is one like it.
@pytest.mark.parametrize("name", ["/dev/fd/1", "/proc/self/fd/1", "{}"])
@pytest.mark.parametrize("mode", ["w", "a"])
def test_standard_output_in_a_file_is_written_to_below_what_is_there(tmp_path, name, mode):
    output, link = tmp_path / "output", tmp_path / "link"
    output.write_text("of before\n")
    link.symlink_to(name.format(output))
    inode = output.stat().st_ino
    for path in (name.format(output), str(link)):
        with output.open(mode) as stream:
            subprocess.run([*RUN, path, "--", "echo", "a line"], stdout=stream, check=True)
        text = output.read_text()
        assert output.stat().st_ino == inode
        assert "[0] a line\n{\n" in text
        assert json.loads(text[text.rindex("\n{\n") :])["exit_code"] == 0
        assert ("of before" in text) is (mode == "a")
    assert link.is_symlink()


def test_what_a_link_leads_to_is_written_and_emptied_at_the_start(launch, tmp_path):
    (tmp_path / "real").write_text("of an earlier run")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert launch("--shards", "1", "--summary-json", f"{tmp_path}/link", "--", "nope").end() == 127
    assert (tmp_path / "real").read_text() == ""
    assert launch("--shards", "1", "--summary-json", f"{tmp_path}/link", "--", "true").end() == 0
    assert (tmp_path / "link").is_symlink()
    assert json.loads((tmp_path / "real").read_text())["exit_code"] == 0
