"""Commands that cannot be run."""

from __future__ import annotations

import errno
import os
import signal
import sys

import pytest


def test_a_command_that_does_not_exist_ends_with_127(launch):
    run = launch("--shards", "2", "--", "no-such-command-here")
    assert run.end() == 127
    assert "no-such-command-here: no such command" in run.text
    assert not run.workers()


def test_a_secret_in_a_command_that_does_not_exist_is_hidden(launch):
    environ = {"PROXY_URL_0": "http://joe:hushhush@h:1"}
    run = launch("--shards", "1", "--", "x=http://joe:hushhush@h:1", "scrapy", environ=environ)
    assert run.end() == 127
    assert "x=***: no such command" in run.text
    assert "hush" not in run.text


def test_a_command_that_is_no_program_ends_with_126(launch, tmp_path):
    (tmp_path / "script").write_text("#!/bin/sh\n")
    run = launch("--shards", "2", "--", f"{tmp_path}/script")
    assert run.end() == 126
    assert not run.workers()


@pytest.mark.parametrize(("text", "code"), [("#!/no/such/interpreter\n", 127), ("no program", 126)])
def test_a_script_the_system_cannot_run_ends_with_its_code(launch, tmp_path, text, code):
    (tmp_path / "script").write_text(text)
    (tmp_path / "script").chmod(0o755)
    run = launch("--shards", "2", "--", f"{tmp_path}/script")
    assert run.end() == code
    assert "shard 0: cannot be started" in run.text
    assert not run.workers()


def test_a_shard_that_cannot_be_started_stops_those_that_were(launch, worker, script):
    # The system itself refuses: the launcher may not open enough files for all.
    limit = (*script("limited.py"), "24")
    run = launch("--shards", "9", "--", *worker, "open", "until-term", "close=shutdown", wrap=limit)
    assert run.end() == 1
    assert f"cannot be started: {os.strerror(errno.EMFILE)}" in run.text
    assert 1 <= len(run.workers()) < 9
    assert run.text.count("stopped, ") == len(run.workers())


def test_workers_start_one_after_the_other_when_asked(launch, worker):
    run = launch("--shards", "3", "--stagger", "600", "--", *worker, "open", "until-term")
    run.wait_for("ready")
    assert len(run.workers()) == 1
    run.signal(signal.SIGTERM)
    assert run.end() == 143
    assert len(run.workers()) == 1


def test_all_of_them_are_started_in_the_end(launch, worker):
    run = launch("--shards", "3", "--stagger", "0.2", "--", *worker, "open", "close=finished")
    assert run.end() == 0
    assert len(run.workers()) == 3


def test_a_first_start_that_fails_is_not_promised_another(launch, tmp_path):
    (tmp_path / "script").write_text("#!/no/such/interpreter\n")
    (tmp_path / "script").chmod(0o755)
    run = launch("--shards", "2", "--max-restarts", "5", "--", f"{tmp_path}/script")
    assert run.end() == 127
    assert "failed: its process could not be started." in run.text
    assert "starts again" not in run.text


def test_a_proxy_that_cannot_be_handed_to_a_worker_is_refused_at_the_start(launch, tmp_path):
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    (tmp_path / "secret").write_text("http://user:p\u00e4ssword@h:1", encoding="utf-8")
    (tmp_path / "secret").chmod(0o600)
    environ = {**ascii_only, "PROXY_URL_FILE_0": f"{tmp_path}/secret"}
    run = launch("--shards", "1", "--", "true", environ=environ)
    assert run.end() == 2
    assert "holds a character that ascii" in run.text
    assert "percent-encode it" in run.text
    assert "ssword" not in run.text


@pytest.mark.skipif(sys.platform != "linux", reason="the size of a stack limits threads on Linux")
@pytest.mark.parametrize("options", [[], ["--check-proxies", "--dry-run"]])
def test_a_launcher_that_gets_no_thread_says_so_in_a_sentence(launch, script, options):
    environ = {"PROXY_URL_0": "http://127.0.0.1:9"}
    wrap = script("threadless.py")
    run = launch("--shards", "1", *options, "--", "true", environ=environ, wrap=wrap)
    assert run.end() == 1
    assert "hexdigest-shard: The system gives the launcher no further thread" in run.text
    assert "Traceback" not in run.text
    assert not run.workers()
