from __future__ import annotations

import os
import pty
import threading
import time
from contextlib import suppress

import pytest
from support.terminal import Terminal

from scrapy_hexshard.launcher.console import Console

FILE_FLAGS = (os.O_RDONLY | os.O_CREAT, *[os.O_WRONLY | os.O_APPEND] * 2)


def read_all(fd: int) -> bytes:
    with open(fd, "rb") as stream:
        return stream.read()


def test_lines_come_in_order_and_all_are_written_before_it_closes():
    read, write = os.pipe()
    console = Console(write, write)
    for number in range(500):
        console.show(b"line %d\n" % number)
    console.say("done.")
    console.close()
    os.close(write)
    expected = "".join(f"line {number}\n" for number in range(500)) + "hexdigest-shard: done.\n"
    assert read_all(read) == expected.encode()
    assert console.dropped == 0


def test_what_a_blocked_reader_leaves_no_room_for_is_dropped_and_counted():
    read, write = os.pipe()
    console = Console(write, write, capacity=10_000)
    for _ in range(1000):
        console.show(b"x" * 999 + b"\n")
    assert console.dropped > 800  # 64 KiB fit into the pipe, 10 kB into the queue
    console.say("own words still find room.")
    reader = threading.Thread(target=lambda: seen.append(read_all(read)))
    seen: list[bytes] = []
    reader.start()
    console.close()
    os.close(write)
    reader.join()
    *lines, own, count = seen[0].splitlines()
    assert len(lines) == 1000 - console.dropped
    assert own == b"hexdigest-shard: own words still find room."
    assert count.startswith(b"hexdigest-shard: %d lines were not shown" % console.dropped)


def test_closing_gives_up_on_a_reader_that_takes_nothing():
    read, write = os.pipe()
    console = Console(write, write)
    console.show(b"x" * 1_000_000)
    console.close(patience=0.1)
    reader = threading.Thread(target=read_all, args=(read,))
    reader.start()  # set the writing thread free
    console.close()
    os.close(write)
    reader.join()


def test_a_reader_that_has_gone_is_no_error():
    read, write = os.pipe()
    os.close(read)
    console = Console(write, write)
    console.show(b"lost\n")
    console.say("lost as well.")
    console.close()
    os.close(write)


class Window:
    """A console on a terminal with a view of one line, and what is to be seen there."""

    def __init__(self, view):
        self._ours, self._terminal = pty.openpty()
        self.output = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.console = Console(self._terminal, self._terminal)
        self.console.show_view(view)

    def _read(self):
        with suppress(OSError):
            while data := os.read(self._ours, 65_536):
                self.output += data

    def close(self) -> list[str]:
        self.console.close()
        os.close(self._terminal)
        self._reader.join()
        os.close(self._ours)
        return Terminal(80, 24).feed(self.output).text


def test_a_view_stands_below_the_lines_until_it_ends(until):
    window = Window(lambda columns, lines: ["view"])
    window.console.show(b"before it is drawn\n")
    until(lambda: b"view" in window.output)
    for number in range(300):
        window.console.show(b"line %d\n" % number)
    until(lambda: b"line 299" in window.output)
    window.console.end_view()
    window.console.say("the end.")
    lines = [f"line {number}" for number in range(300)]
    assert window.close() == ["before it is drawn", *lines, "hexdigest-shard: the end."]
    # Many lines come together above one view.
    assert window.output.count(b"view") < 30


def test_a_view_that_fails_costs_no_line_and_is_said_once(until):
    window = Window(lambda columns, lines: {}["line"])
    window.console.show(b"one\n")
    until(lambda: b"failed" in window.output)
    window.console.show(b"two\n")
    assert window.close() == [
        "one",
        "hexdigest-shard: no live view, as it failed: KeyError: 'line'",
        "two",
    ]


def test_a_console_without_anything_to_do_takes_no_time(until):
    window = Window(lambda columns, lines: ["view"])
    until(lambda: b"view" in window.output)
    window.console.end_view()
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.25
    assert window.close() == []


def test_closing_removes_a_view_that_was_not_ended(until):
    window = Window(lambda columns, lines: ["view"])
    until(lambda: b"view" in window.output)
    window.console.show(b"last\n")
    assert window.close() == ["last"]


def test_a_reader_of_one_stream_that_is_stuck_does_not_hold_up_the_other():
    stuck, out = os.pipe()
    read, err = os.pipe()
    console = Console(out, err)
    for _ in range(200):
        console.show(b"x" * 999 + b"\n")
    console.say("the table.")
    console.close(patience=0.2)
    os.close(err)
    table, count = read_all(read).decode().splitlines()
    assert table == "hexdigest-shard: the table."
    lost = int(count.split()[1])
    reader = threading.Thread(target=lambda: seen.append(read_all(stuck)))
    seen: list[bytes] = []
    reader.start()
    console._output.close(5)
    os.close(out)
    reader.join()
    in_the_pipe = 64
    assert 200 - in_the_pipe - 8 <= lost <= 200 - in_the_pipe + 8


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_what_leads_to_one_place_keeps_its_order(tmp_path, kind):
    if kind == "pipe":
        read, out = os.pipe()
        err = os.dup(out)
    else:
        read, out, err = (os.open(tmp_path / "x", flags) for flags in FILE_FLAGS)
    console = Console(out, err)
    for number in range(200):
        console.show(b"line %d\n" % number)
        console.print(f"word {number}\n")
    console.close()
    os.close(out)
    os.close(err)
    expected = "".join(f"line {number}\nword {number}\n" for number in range(200))
    assert read_all(read).decode() == expected


def test_a_stream_that_does_not_block_loses_nothing():
    read, write = os.pipe()
    os.set_blocking(write, False)
    console = Console(write, write)
    for _ in range(500):
        console.show(b"x" * 999 + b"\n")
    reader = threading.Thread(target=lambda: seen.append(read_all(read)))
    seen: list[bytes] = []
    reader.start()
    console.close()
    os.close(write)
    reader.join()
    assert len(seen[0].splitlines()) == 500
    assert console.dropped == 0


def test_lines_that_cannot_be_written_are_counted():
    full = os.open("/dev/full", os.O_WRONLY)
    read, write = os.pipe()
    console = Console(full, write)
    for _ in range(30):
        console.show(b"x" * 999 + b"\n")
    console.close()
    os.close(full)
    os.close(write)
    assert console.dropped == 30
    assert read_all(read).startswith(b"hexdigest-shard: 30 lines were not shown")


def test_a_terminal_obeys_no_worker_even_without_a_view():
    ours, terminal = pty.openpty()
    console = Console(terminal, terminal)
    console.show(b"[0] a\x1b]0;title\x07b\x1b[2Jc\n")
    console.close()
    os.close(terminal)
    shown = os.read(ours, 65_536)
    os.close(ours)
    assert b"\x1b]" not in shown
    assert b"\x1b[2J" not in shown
    assert b"\x07" not in shown
