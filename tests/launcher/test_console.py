from __future__ import annotations

import os
import threading

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
