"""The worker's ends of the two pipes to its launcher, over real pipes and processes."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from scrapy_hexshard.pipes import (
    LIFELINE_VARIABLE,
    MAX_LINE_BYTES,
    STATUS_VARIABLE,
    LauncherPipes,
    describe_descriptor,
)


class Pipe:
    """Both ends of a pipe; those still open are closed in the end."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        self._inodes = {fd: os.fstat(fd).st_ino for fd in (self.read, self.write)}

    def close(self) -> None:
        for fd, inode in self._inodes.items():
            try:
                # The number may be another file's by now.
                if os.fstat(fd).st_ino == inode:
                    os.close(fd)
            except OSError:
                continue

    def received(self) -> bytes:
        os.close(self.write)
        with os.fdopen(self.read, "rb") as lines:
            return lines.read()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def status_pipes(pipe: Pipe) -> LauncherPipes:
    return LauncherPipes.take({STATUS_VARIABLE: describe_descriptor(pipe.write)})


def fill(fd: int) -> int:
    """Fill a non-blocking pipe to the last byte; return how many went in."""
    sent = 0
    for size in (65_536, 4096, 1):
        try:
            while True:
                sent += os.write(fd, b"x" * size)
        except BlockingIOError:
            continue
    return sent


class TestTake:
    def test_the_variables_are_taken_out_of_the_environment(self, pipe: Pipe) -> None:
        environ = {
            LIFELINE_VARIABLE: describe_descriptor(pipe.read),
            STATUS_VARIABLE: describe_descriptor(pipe.write),
            "OTHER": "stays",
        }
        LauncherPipes.take(environ)
        assert environ == {"OTHER": "stays"}

    def test_both_descriptors_are_kept_from_children(self, pipe: Pipe) -> None:
        for fd in (pipe.read, pipe.write):
            os.set_inheritable(fd, True)
        LauncherPipes.take(
            {
                LIFELINE_VARIABLE: describe_descriptor(pipe.read),
                STATUS_VARIABLE: describe_descriptor(pipe.write),
            }
        )
        assert not os.get_inheritable(pipe.read)
        assert not os.get_inheritable(pipe.write)

    @pytest.mark.parametrize(
        "text",
        [
            *("", "x", "-1:5", "{fd}", "{fd}:", "{fd}:1", "{fd}:x{inode}", " {fd}:{inode}"),
            *("{fd}:{inode} ", "²:{inode}", "99999:{inode}", "9" * 40 + ":{inode}"),
        ],
    )
    def test_a_descriptor_that_is_not_the_named_pipe_is_left_alone(
        self, pipe: Pipe, text: str
    ) -> None:
        inode = os.fstat(pipe.write).st_ino
        os.set_inheritable(pipe.write, True)
        environ = {STATUS_VARIABLE: text.format(fd=pipe.write, inode=inode)}
        pipes = LauncherPipes.take(environ)
        pipes.report("opened")
        assert environ == {}
        assert os.get_inheritable(pipe.write)
        assert os.get_blocking(pipe.write)
        assert pipe.received() == b""

    def test_a_number_that_now_is_another_file_is_left_alone(
        self, pipe: Pipe, tmp_path: Path
    ) -> None:
        described = describe_descriptor(pipe.write)
        path = tmp_path / "precious"
        with path.open("wb") as file:
            os.dup2(file.fileno(), pipe.write)
            LauncherPipes.take({STATUS_VARIABLE: described}).report("opened")
            os.close(pipe.write)
        assert path.read_bytes() == b""

    def test_without_a_launcher_every_call_does_nothing(self) -> None:
        pipes = LauncherPipes.take({})
        pipes.report("opened", shard=0)
        pipes.watch(lambda: pytest.fail("nobody has gone"))
        assert pipes.dropped == 0


class TestStatus:
    def test_each_report_is_one_json_line(self, pipe: Pipe) -> None:
        pipes = status_pipes(pipe)
        pipes.report("opened", pid=1, spider="a\nb", shard=0, shards=4)
        pipes.report("closed", reason="finished")
        lines = pipe.received().splitlines()
        assert [json.loads(line) for line in lines] == [
            {"event": "opened", "pid": 1, "spider": "a\nb", "shard": 0, "shards": 4},
            {"event": "closed", "reason": "finished"},
        ]
        assert pipes.dropped == 0

    @pytest.mark.timeout(60)
    def test_a_full_pipe_never_blocks_and_what_it_did_not_take_is_counted(self, pipe: Pipe) -> None:
        pipes = status_pipes(pipe)
        filled = fill(pipe.write)
        for event in ("progress", "opened", "closed"):
            pipes.report(event, done=1)
        assert pipes.dropped == 3

        assert len(os.read(pipe.read, filled)) == filled
        pipes.report("progress", done=2)
        assert json.loads(pipe.received()) == {"event": "progress", "done": 2}
        assert pipes.dropped == 3

    @pytest.mark.parametrize("size", [65_536, 16_384])
    def test_a_pipe_that_progress_has_filled_still_takes_the_other_events(
        self, pipe: Pipe, size: int
    ) -> None:
        if sys.platform == "linux":
            fcntl.fcntl(pipe.write, fcntl.F_SETPIPE_SZ, size)
        pipes = status_pipes(pipe)
        for done in range(5000):
            pipes.report("progress", done=done)
        dropped = pipes.dropped
        pipes.report("closed", reason="finished", done=5000)
        pipes.report("opened", text="x" * 3000)
        assert pipes.dropped == dropped > 0
        events = [json.loads(line)["event"] for line in pipe.received().splitlines()]
        assert events == ["progress"] * (5000 - dropped) + ["closed", "opened"]

    def test_a_line_is_sent_whole_or_not_at_all(self, pipe: Pipe) -> None:
        pipes = status_pipes(pipe)
        filled = fill(pipe.write)
        os.read(pipe.read, 4096)  # room for one page, which the next lines together exceed
        for _ in range(3):
            pipes.report("opened", text="y" * 2000)
        received = pipe.received()[filled - 4096 :]
        assert pipes.dropped == 3 - received.count(b"\n")
        assert all(json.loads(line) for line in received.splitlines())

    def test_a_line_too_long_to_be_sent_in_one_piece_is_counted(self, pipe: Pipe) -> None:
        pipes = status_pipes(pipe)
        frame = len(json.dumps({"event": "progress", "text": ""})) + 1
        pipes.report("progress", text="x" * (MAX_LINE_BYTES - frame + 1))
        assert pipes.dropped == 1
        pipes.report("progress", text="x" * (MAX_LINE_BYTES - frame))
        assert pipes.dropped == 1
        assert len(pipe.received()) == MAX_LINE_BYTES

    def test_a_reader_that_is_gone_ends_the_reports_quietly(self, pipe: Pipe) -> None:
        pipes = status_pipes(pipe)
        os.close(pipe.read)
        pipes.report("progress", done=1)
        pipes.report("progress", done=2)
        assert pipes.dropped == 0


class TestLifeline:
    def test_its_end_calls_back_once_and_closes_it(self, pipe: Pipe) -> None:
        gone = threading.Semaphore(0)
        pipes = LauncherPipes.take({LIFELINE_VARIABLE: describe_descriptor(pipe.read)})
        pipes.watch(gone.release)
        pipes.watch(gone.release)
        assert not gone.acquire(blocking=False)
        os.close(pipe.write)
        assert gone.acquire(timeout=60)
        assert not is_open(pipe.read)
        assert not gone.acquire(timeout=0.05)

    def test_what_is_written_to_it_does_not_end_it(self, pipe: Pipe) -> None:
        gone = threading.Event()
        pipes = LauncherPipes.take({LIFELINE_VARIABLE: describe_descriptor(pipe.read)})
        pipes.watch(gone.set)
        os.write(pipe.write, b"stray bytes")
        assert not gone.wait(0.05)
        os.close(pipe.write)
        assert gone.wait(60)


WORKER = """
import os, subprocess, sys
from scrapy_hexshard.pipes import LauncherPipes
pipes = LauncherPipes.take()
grandchild = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"],
    stdin=subprocess.PIPE, close_fds=False)
pipes.watch(lambda: (pipes.report("closed", reason="gone"), grandchild.stdin.close(), os._exit(7)))
pipes.report("opened", left=[name for name in os.environ if name.startswith("HEXSHARD_")])
grandchild.wait()
"""


@pytest.mark.timeout(120)
def test_a_worker_process_notices_its_launcher_going_though_it_has_children() -> None:
    lifeline, status = Pipe(), Pipe()
    try:
        environ = dict(os.environ)
        environ[LIFELINE_VARIABLE] = describe_descriptor(lifeline.read)
        environ[STATUS_VARIABLE] = describe_descriptor(status.write)
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKER], env=environ, pass_fds=(lifeline.read, status.write)
        )
        os.close(lifeline.read)
        os.close(status.write)
        with os.fdopen(status.read, "rb") as lines:
            assert json.loads(lines.readline()) == {"event": "opened", "left": []}
            os.close(lifeline.write)
            assert json.loads(lines.readline()) == {"event": "closed", "reason": "gone"}
            # The grandchild did not inherit the status pipe: it ends with the worker.
            assert lines.read() == b""
        assert worker.wait(60) == 7
    finally:
        lifeline.close()
        status.close()
