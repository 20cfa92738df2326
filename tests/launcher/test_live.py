"""The live view of a real run on a real terminal, and the line a minute elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from support.terminal import Terminal

from scrapy_hexshard.launcher.live import LINE_SECONDS, LineAMinute, LiveView

SEQUENCE = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
HEAD = "shard  state"
MANY = ("9999999", "20", "tell")


@pytest.fixture
def crawler(script) -> tuple[str, str]:
    """The command of a worker that crawls what its arguments say."""
    return script("crawler.py")


def plain(output: bytes) -> str:
    return SEQUENCE.sub("", output.decode(errors="replace")).replace("\r\n", "\n")


def views(output: bytes) -> int:
    return plain(output).count(HEAD)


def test_lines_stand_whole_and_in_order_above_a_view_that_is_gone_at_the_end(
    launch_on_terminal, crawler, until
):
    terminal = launch_on_terminal(
        "--shards", "2", "--", *crawler, "120", "40", "say", "tell", size=(79, 20)
    )
    run = terminal.launcher
    until(lambda: views(run.output) >= 2)
    assert run.end() == 0
    text = Terminal(79, 20).feed(run.output).text
    for shard in (0, 1):
        lines = [line for line in text if line.startswith(f"[{shard}]")]
        assert lines == [
            f"[{shard}] 2026-11-29 23:00:00 [scrapy.core.engine] INFO: key {number} is done"
            for number in range(1, 121)
        ]
    assert not [line for line in text if HEAD in line or "━" in line]
    rest = [line for line in text if not line.startswith(("[0]", "[1]", "hexdigest-shard: "))]
    assert rest[0].split()[:3] == ["shard", "lives", "exit"]
    assert [line.split()[0] for line in rest] == ["shard", "0", "1", "total", "Keys"]


def test_the_view_shows_what_the_workers_report(launch_on_terminal, crawler, until):
    terminal = launch_on_terminal("--shards", "2", "--", *crawler, *MANY, size=(80, 24))
    run = terminal.launcher
    until(lambda: re.search(r"\n +1  running +16 +[1-9]", plain(run.output)))
    until(lambda: "of 19,999,998 keys" in plain(run.output))
    terminal.press_ctrl_c()
    assert run.end() == 130


def test_a_worker_that_was_killed_shows_as_restarted(launch_on_terminal, crawler, until):
    words = ("--shards", "1", "--max-restarts", "9")
    terminal = launch_on_terminal(*words, "--", *crawler, "999", "20", "die=90", size=(80, 24))
    run = terminal.launcher
    until(lambda: re.search(r"\n +0  \w+ .* [1-9]  SIGKILL", plain(run.output)))
    terminal.press_ctrl_c()
    run.end()


def test_the_view_follows_the_size_of_the_terminal(launch_on_terminal, crawler, until):
    terminal = launch_on_terminal("--shards", "3", "--", *crawler, *MANY, size=(120, 24))
    run = terminal.launcher
    until(lambda: "last error" in plain(run.output))
    terminal.resize(40, 24)
    until(lambda: re.search(r"\rshard  state +done  dead  pages/min\n", plain(run.output)))
    terminal.resize(40, 6)
    until(lambda: "━" in plain(run.output[-200:]) and "total" not in plain(run.output[-200:]))
    terminal.press_ctrl_c()
    assert run.end() == 130


def test_ctrl_c_leaves_the_terminal_as_it_was(launch_on_terminal, crawler, until):
    terminal = launch_on_terminal("--shards", "2", "--", *crawler, *MANY, size=(80, 24))
    run = terminal.launcher
    until(lambda: views(run.output) >= 2)
    terminal.press_ctrl_c()
    assert run.end() == 130
    # No mode was set that would have to be reset: the cursor was never hidden, for one.
    assert b"\x1b[?" not in run.output
    seen = Terminal(80, 24).feed(run.output)
    assert seen.column == 0
    assert not seen.styled
    assert not [line for line in seen.text if "^C" in line or "━" in line]
    assert "hexdigest-shard: SIGINT: stopping 2 workers." in seen.text


def test_no_color_leaves_a_view_without_colours(launch_on_terminal, crawler, until):
    terminal = launch_on_terminal(
        "--shards", "2", "--", *crawler, *MANY, size=(80, 24), environ={"NO_COLOR": "1"}
    )
    until(lambda: views(terminal.launcher.output) >= 2)
    terminal.press_ctrl_c()
    terminal.launcher.end()
    assert set(re.findall(rb"\x1b\[([\d;]*)m", terminal.launcher.output)) <= {b"0", b"1", b"2"}


@pytest.mark.parametrize(
    ("words", "environ"), [((), {"TERM": "dumb"}), (("--no-progress",), {}), ((), {"TERM": ""})]
)
def test_where_no_view_is_wanted_lines_are_plain(launch_on_terminal, crawler, words, environ):
    terminal = launch_on_terminal(
        "--shards", "1", *words, "--", *crawler, "60", "25", "say", environ=environ
    )
    run = terminal.launcher
    assert run.end() == 0
    assert "\x1b" not in run.text
    assert HEAD not in run.text
    assert run.text.count("is done\n") == 60


def test_a_pipe_behind_the_terminal_gets_the_lines_and_no_view_disturbs_its_reader(
    launch_on_terminal, crawler
):
    read, write = os.pipe()
    terminal = launch_on_terminal("--shards", "1", "--", *crawler, "60", "25", "say", stdout=write)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        assert stream.read().count(b"is done\n") == 60
    assert terminal.launcher.end() == 0
    assert "\x1b" not in terminal.launcher.text


def test_output_into_a_file_leaves_the_view_on_the_terminal(
    launch_on_terminal, crawler, until, tmp_path
):
    with (tmp_path / "out").open("wb") as file:
        terminal = launch_on_terminal(
            "--shards", "1", "--", *crawler, "90", "30", "say", stdout=file.fileno()
        )
        until(lambda: views(terminal.launcher.output))
        assert terminal.launcher.end() == 0
    lines = (tmp_path / "out").read_bytes()
    assert lines.count(b"is done\n") == 90
    assert b"\x1b" not in lines
    assert "is done" not in terminal.launcher.text


def test_a_terminal_that_nobody_reads_stops_no_worker(launch_on_terminal, crawler, until, tmp_path):
    done = tmp_path / "done"
    flood = "import os, sys\nfor _ in range(20_000): os.write(1, b'x' * 999 + b'\\n')\n"
    terminal = launch_on_terminal(
        *("--shards", "1", "--", sys.executable, "-c"),
        flood + f"open({str(done)!r}, 'w').close()\nimport time\ntime.sleep(3)",
        read=False,
    )
    until(done.exists)
    assert terminal.launcher.process.wait(60) == 0
    terminal.close()


def test_closing_the_window_under_a_view_stops_the_run(launch_on_terminal, crawler, until):
    terminal = launch_on_terminal("--shards", "2", "--", *crawler, *MANY, read=False, size=(80, 24))
    shown = b""
    while views(shown) < 2:
        shown += terminal.read()
    terminal.close()
    assert terminal.launcher.process.wait(60) == 129


def test_a_short_run_loads_no_rich(tmp_path):
    code = (
        "import atexit, sys\nfrom scrapy_hexshard.cli import main\n"
        "atexit.register(lambda: print('rich' in sys.modules))\n"
        "main(['run', '--shards', '1', '--', 'true'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_elsewhere_a_line_tells_the_progress(script):
    code = (
        "import scrapy_hexshard.launcher.live as live\nfrom scrapy_hexshard.cli import main\n"
        "live.LINE_SECONDS = 0.5\n"
        f"main(['run', '--shards', '2', '--', *{script('crawler.py')!r}, '80', '20', 'tell'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = [line for line in done.stderr.splitlines() if "workers running" in line]
    assert len(lines) >= 3
    assert re.fullmatch(
        r"hexdigest-shard: 0:00:0\d: \d+ of 160 keys \(\d+\.\d %\)(, [\d.,]+ a minute)?"
        r"(, \d of them dead in this run)?, 2 of 2 workers running\.",
        lines[2],
    )


def test_a_line_comes_once_a_minute():
    said: list[str] = []
    line = LineAMinute([], said.append)
    now, times = 100.0, []
    while now < 1_000:
        before = len(said)
        line.look(now)
        times += [now] * (len(said) - before)
        assert now < line.next_at <= now + LINE_SECONDS
        now = line.next_at
    assert times == [160.0 + LINE_SECONDS * number for number in range(14)]


def test_a_view_looks_once_a_second_and_shows_nothing_before():
    view = LiveView([])
    assert view.lines(80, 24) == ()
    view.look(10.0)
    assert view.next_at == 11.0
    view.look(10.5)
    assert view.next_at == 11.0
    assert view.lines(80, 24)
