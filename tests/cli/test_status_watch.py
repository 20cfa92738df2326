"""``status --watch``: a store seen again and again until nothing in it is open."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.terminal import Terminal

from scrapy_hexshard import ShardSpec, open_store
from scrapy_hexshard.cli import main
from scrapy_hexshard.cli.watched_store import StoreObserver
from scrapy_hexshard.launcher.live_pace import Progress
from scrapy_hexshard.store.contract import ShardCounts, State

COMMAND = [sys.executable, "-m", "scrapy_hexshard", "status"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "crawl.sqlite3"


@pytest.fixture
def store(path: Path):
    with open_store(str(path), ShardSpec(0, 1)) as store:
        store.enqueue(map(str, range(10)))
        yield store


# What is seen.


def shard(
    number: int, pending: int, running: int, done: int, failed: int, dead: int
) -> ShardCounts:
    counts = zip(State, (pending, running, done, failed, dead), strict=True)
    return ShardCounts(number, dict(counts))


def test_rates_and_the_time_left_come_from_what_ended_between_the_looks() -> None:
    observer = StoreObserver()
    for minute in range(3):
        sight = observer.look(
            60.0 * minute,
            [
                shard(0, 500 - 10 * minute, 3, 1_000 + 8 * minute, 1, 5 + 2 * minute),
                shard(1, 200, 0, 300, 0, 0),
            ],
        )
    assert sight.progress == Progress(
        seconds=120.0, ended=1_325, keys=2_009, open=684, per_minute=10.0, eta=4_104.0
    )
    picture = sight.picture(24)
    head = [column.title for column in picture.columns]
    assert head == ["shard", "pending", "running", "done", "failed", "dead", "keys/min"]
    rows = [[cell.text for cell in row] for row in [*picture.rows, picture.total]]
    assert rows == [
        ["0", "480", "3", "1,016", "1", "9", "10"],
        ["1", "200", "0", "300", "0", "0", "-"],
        ["total", "680", "3", "1,316", "1", "9", "10"],
    ]


def test_many_shards_are_folded() -> None:
    sight = StoreObserver().look(0.0, [shard(number, 1, 2, 3, 4, 5) for number in range(64)])
    rows = [[cell.text for cell in row] for row in sight.picture(60).rows]
    assert len(rows) == 16
    assert rows[1] == ["4-7", "4", "8", "12", "16", "20", "-"]


def test_a_crawl_stalls_when_no_count_changes_and_not_while_keys_fail_again_and_again() -> None:
    busy, still = StoreObserver(), StoreObserver()
    for second in range(121):
        seen = still.look(float(second), [shard(0, 5, 1, 0, 4, 0)])
        assert seen.progress.stalled is (second >= 60)
        failing = [shard(0, 5, second % 2, 0, 5 - second % 2, 0)]
        assert not busy.look(float(second), failing).progress.stalled


# The command.


def test_each_line_is_a_document_until_nothing_is_open(path: Path, store) -> None:
    command = [*COMMAND, path, "--watch", "0.1", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        first = json.loads(process.stdout.readline())
        store.complete(*store.claim())
        *_, last = map(json.loads, process.stdout)
        assert process.wait(60) == 0
    assert (first["total"]["pending"], first["total"]["done"]) == (10, 0)
    assert (last["total"]["pending"], last["total"]["done"]) == (0, 10)
    assert list(last) == list(first)


def test_on_a_pipe_it_says_sentences_and_ends_with_the_tables(path: Path, store) -> None:
    command = [*COMMAND, "--watch", "0.1", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "0:00:00: 0 of 10 keys (0.0 %).\n"
        store.complete(*store.claim())
        text = process.stdout.read()
        assert process.wait(60) == 0
    assert "keys (100.0 %)" in text
    assert text.splitlines()[-1].split() == ["10", "done"]
    assert "\x1b" not in text


class Watch:
    """``status --watch`` on a terminal of its own."""

    def __init__(self, path: Path) -> None:
        self._keyboard, terminal = pty.openpty()
        self.output = b""
        self.process = subprocess.Popen(
            [*COMMAND, "--watch", ".1", path],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**os.environ, "TERM": "xterm"},
            start_new_session=True,
        )
        os.close(terminal)

    def read(self) -> bool:
        try:
            self.output += os.read(self._keyboard, 65_536)
        except OSError:
            return False
        return True

    def read_until(self, pattern: str) -> None:
        while not re.search(pattern, self.text):
            assert self.read(), self.text

    @property
    def text(self) -> str:
        return re.sub(r"\x1b\[[\d;]*[A-Za-z]", "", self.output.decode(errors="replace"))

    def end(self) -> int:
        while self.read():
            pass
        os.close(self._keyboard)
        return self.process.wait(60)


def test_on_a_terminal_a_view_is_drawn_until_nothing_is_open(path: Path, store) -> None:
    watch = Watch(path)
    watch.read_until(r"0\.0 %  0 of 10 keys")
    claims = store.claim(4)
    watch.read_until(r"\n +0 +6 +4 +0 +0 +0")
    store.complete(*claims)
    watch.read_until(r"40\.0 %  4 of 10 keys")
    store.complete(*store.claim())
    assert watch.end() == 0
    text = Terminal(80, 24).feed(watch.output.replace(b"\xe2\x94\x80", b"-")).text
    assert text[0] == f"{path}: 10 keys on 1 shard, 100.0 % ended"[:80]
    assert not [line for line in text if "━" in line]


def test_ctrl_c_ends_it_and_leaves_the_view_to_be_read(path: Path, store) -> None:
    watch = Watch(path)
    watch.read_until("of 10 keys(.|\n)+of 10 keys")
    os.kill(watch.process.pid, signal.SIGINT)
    assert watch.end() == 130
    seen = Terminal(80, 24).feed(watch.output)
    assert [line.split()[0] for line in seen.text[:2]] == ["shard", "0"]
    assert "0 of 10 keys" in seen.text[2]
    assert len(seen.text) == 3
    assert seen.column == 0


def test_a_store_that_goes_away_is_a_sentence(path: Path, store) -> None:
    command = [*COMMAND, path, "--watch", "0.1"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout.readline()
        path.rename(path.with_name("elsewhere"))
        assert process.wait(60) == 2
        error = process.stderr.read()
    assert error.count("\n") == 1
    assert str(path) in error


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "required: STORE"),
        (["--watch"], "required: STORE"),
        (["--watch", "5"], "required: STORE"),
        (["--watch", "soon", "crawl.sqlite3"], "'soon' is not a number of seconds above 0"),
        (["--watch", "0", "crawl.sqlite3"], "'0' is not a number of seconds above 0"),
        (["crawl.sqlite3", "--watch", "inf"], "'inf' is not a number of seconds above 0"),
    ],
)
def test_impossible_words_are_usage_errors(words, says, capsys) -> None:
    with pytest.raises(SystemExit) as end:
        main(["status", *words])
    assert end.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--watch", "{}"], ["{}", "--watch"], ["--watch", "3", "{}"]])
def test_the_store_may_come_before_or_after(words, path: Path, store, capsys) -> None:
    store.complete(*store.claim())
    assert main(["status", *(word.format(path) for word in words)]) == 0
    assert "10 of 10 keys (100.0 %)" in capsys.readouterr().out


def test_a_store_without_keys_is_not_through_but_has_none_yet(path: Path, capsys) -> None:
    with open_store(str(path), 2):
        pass
    assert main(["status", "--watch", "0.1", str(path)]) == 0
    said, table, *_ = capsys.readouterr().out.splitlines()
    assert said == "0:00:00: no keys yet."
    assert table == f"{path}: no keys yet on 2 shards"
