from __future__ import annotations

import os
import pty
import threading
import time
from contextlib import suppress

from support.terminal import Terminal

from scrapy_hexshard.launcher.console import Console


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
    assert len(seen[0].splitlines()) == 1000 - console.dropped + 1
    assert seen[0].endswith(b"own words still find room.\n")


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
