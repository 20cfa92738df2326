"""Where the output of the workers goes, and that no secret goes with it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time

import pytest

from scrapy_hexshard.launcher.logs import LogFile

FINISHED = ("open", "close=finished")
RUN = (sys.executable, "-m", "scrapy_hexshard", "run", "--shards", "1", "--")


def test_logs_go_to_private_files_that_are_appended_to(launch, worker, tmp_path):
    folder = tmp_path / "deep" / "logs"
    words = (
        "--shards",
        "2",
        "--log-dir",
        str(folder),
        "--",
        *worker,
        "say=plain",
        "say=2026 [x] ERROR: bad",
    )
    for _ in range(2):
        assert launch(*words).end() == 0
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sorted(file.name for file in folder.iterdir()) == ["shard-0000.log", "shard-0001.log"]
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.read_text() == "plain\n2026 [x] ERROR: bad\n" * 2


def test_with_log_files_the_console_shows_what_is_noteworthy(launch, worker, tmp_path):
    stats = "say=  'log_count/ERROR': 1"
    run = launch(
        "--shards",
        "1",
        "--log-dir",
        str(tmp_path),
        "--",
        *worker,
        "say=plain",
        "say=2026 [x] ERROR: bad",
        stats,
    )
    assert run.end() == 0
    assert "[0] 2026 [x] ERROR: bad\n" in run.text
    assert "plain" not in run.text
    assert "log_count" not in run.text


def test_a_log_folder_that_cannot_be_written_starts_nothing(launch, worker, tmp_path):
    (tmp_path / "logs").write_text("a file")
    run = launch("--shards", "1", "--log-dir", str(tmp_path / "logs"), "--", *worker)
    assert run.end() == 2
    assert run.text.startswith("hexdigest-shard: Cannot write ")
    assert "Traceback" not in run.text
    assert not run.workers()


def test_the_mode_of_what_is_no_file_is_left_alone(tmp_path):
    pipe = tmp_path / "shard-0000.log"
    os.mkfifo(pipe, 0o640)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    LogFile(tmp_path, 0).close()
    os.close(reader)
    assert stat.S_IMODE(pipe.stat().st_mode) == 0o640


def test_a_full_disk_is_said_once_and_the_lines_go_to_the_console(launch, worker, tmp_path):
    (tmp_path / "shard-0000.log").symlink_to("/dev/full")
    run = launch(
        "--shards", "1", "--log-dir", str(tmp_path), "--", *worker, "say=one", "say=two", *FINISHED
    )
    assert run.end() == 0
    assert run.text.count("No space left on device. Its lines go to the console.") == 1
    assert "[0] one\n" in run.text
    assert "[0] two\n" in run.text


@pytest.mark.parametrize("logged", [False, True])
def test_no_secret_of_a_proxy_reaches_the_console_or_a_log(launch, script, tmp_path, logged):
    options = ("--log-dir", str(tmp_path)) if logged else ()
    environ = {"PROXY_URL_0": "http://scraper-eu:p%40ss%2Fw0rd@proxy.example:8080"}
    run = launch("--shards", "1", *options, "--", *script("blabber.py"), environ=environ)
    assert run.end() == 0
    log = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    for hidden in (b"scraper-eu", b"w0rd", b"p@ss", b"p%40ss", b"proxy.example", b"c2NyYXBlc"):
        assert hidden not in run.output
        assert hidden not in log
    assert (log or run.output).count(b"***") == 7 * 4
    assert (log or run.output).count(b"y") >= 7_000_000


def test_a_console_that_nobody_reads_holds_up_no_worker(tmp_path):
    flood = "import os, sys\nfor _ in range(20_000): os.write(1, b'x' * 999 + b'\\n')\n"
    reached = f"open({str(tmp_path / 'reached')!r}, 'w').close()"
    read, write = os.pipe()
    process = subprocess.Popen(
        [*RUN, sys.executable, "-c", flood + reached], stdout=write, stderr=write
    )
    os.close(write)
    try:
        assert process.wait(60) == 0
        assert (tmp_path / "reached").exists()
    finally:
        process.kill()
        os.close(read)


def test_a_reader_that_leaves_early_stops_nothing(worker, tmp_path):
    chatter = ["say=first"] * 50 + [f"environ={tmp_path}/reached", *FINISHED]
    with subprocess.Popen(
        [*RUN, *worker, *chatter], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        process.stdout.close()
        assert process.wait(60) == 0
    assert (tmp_path / "reached").exists()


def test_lines_that_found_no_room_are_counted_at_the_end(tmp_path):
    # The output stays unread until the worker has written far more than is kept for it.
    flood = "import os\nfor _ in range(20_000): os.write(1, b'x' * 999 + b'\\n')\n"
    reached = f"open({str(tmp_path / 'reached')!r}, 'w').close()"
    command = [*RUN, sys.executable, "-c", flood + reached]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        while not (tmp_path / "reached").exists():
            time.sleep(0.02)
        shown = process.stdout.read().decode()
    lines = shown.count("x" * 999)
    assert 0 < lines < 20_000
    assert f"{20_000 - lines} lines were not shown" in shown
