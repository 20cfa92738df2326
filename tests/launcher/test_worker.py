"""One worker, without the main loop around it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from scrapy_hexshard.launcher import worker as worker_module
from scrapy_hexshard.launcher.child import Child
from scrapy_hexshard.launcher.console import Console
from scrapy_hexshard.launcher.ladder import UNKILLABLE_SECONDS
from scrapy_hexshard.launcher.logs import ShardOutput
from scrapy_hexshard.launcher.plan import make_plan
from scrapy_hexshard.launcher.reports import Totals
from scrapy_hexshard.launcher.restarts import Restarts
from scrapy_hexshard.launcher.worker import Worker
from scrapy_hexshard.redaction import Redactor

REAPING = """
import os, subprocess
from scrapy_hexshard.launcher.child import reap_stranger
os.getpid = lambda: 1
own = subprocess.Popen(["sh", "-c", "exit 7"])
os.waitid(os.P_PID, own.pid, os.WEXITED | os.WNOWAIT)
assert not reap_stranger({own.pid})
assert own.wait() == 7
stranger = subprocess.Popen(["true"])
os.waitid(os.P_PID, stranger.pid, os.WEXITED | os.WNOWAIT)
assert reap_stranger({own.pid})
assert not reap_stranger(set())
"""


Start = Callable[..., Worker]


@pytest.fixture
def start(until) -> Iterator[Start]:
    """Begin the life of a worker, which is ended after the test."""
    lifeline, end = os.pipe()
    started: list[Child] = []

    def begin(*command: str, now: float, stall_timeout: float | None = None) -> Worker:
        spec = make_plan(command, 1, os.environ).specs[0]
        output = ShardOutput(0, Redactor([]), Console(os.dup(1), os.dup(2)))
        each = Worker(spec, output, Restarts(0, 1.0), 1000, stall_timeout)
        started.append(each.start(lifeline, now))
        return each

    yield begin
    os.close(end)
    os.close(lifeline)
    for child in started:
        child.kill()
        until(child.ended)


def test_the_last_reports_of_a_life_are_read_when_it_is_buried(worker, until, start):
    each = start(*worker, "open", "close=finished", now=10.0)
    until(lambda: each.has_ended(11.0))
    life = each.bury(12.5)
    assert (life.returncode, life.finished) == (0, True)
    assert (life.started_at, life.seconds) == (10.0, 2.5)
    assert life.totals == each.totals == Totals(done=3, items=3)
    assert not each.active


def test_only_strangers_are_reaped_beside_the_workers():
    subprocess.run([sys.executable, "-c", REAPING], check=True, timeout=60)


def test_one_that_says_nothing_stalls_after_the_timeout_and_not_twice_that(worker, start):
    each = start(*worker, "until-term", now=100.0, stall_timeout=10.0)
    each.output.bytes_read = 0  # whatever its interpreter may have said
    assert not each.stop_if_stalled(109.9)
    assert each.stop_if_stalled(110.0)


def test_what_it_reported_meanwhile_is_read_before_it_is_judged(worker, start, until):
    report = 'report={"event": "progress", "done": 1, "running": 2}'
    each = start(*worker, "open", report, "until-term", now=100.0, stall_timeout=10.0)
    until(lambda: each.output.bytes_read)  # it is ready, and has reported
    assert not each.stop_if_stalled(500.0)  # as it said something
    assert each.totals.done == 0
    assert not each.stop_if_stalled(600.0)
    assert each.totals.done == 1
    assert each.stop_if_stalled(610.0)


def test_without_a_thread_for_its_output_a_worker_is_not_left_running(start, monkeypatch):
    begun: list[Child] = []

    class Noted(Child):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)
            begun.append(self)

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("hexshard-output"):
            raise RuntimeError("can't start new thread")
        start_thread(thread)

    start_thread = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(worker_module, "Child", Noted)
    with pytest.raises(OSError, match="no thread is left") as caught:
        start("sleep", "600", now=1.0)
    assert caught.value.errno == errno.EAGAIN
    with pytest.raises(ProcessLookupError):
        os.kill(begun[0].pid, 0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(begun[0].output)


def test_one_whose_group_cannot_be_emptied_is_given_up(start, until, monkeypatch):
    each = start("true", now=10.0)
    monkeypatch.setattr(Child, "group_is_empty", lambda child: False)
    until(each.child.ended)
    assert not each.has_ended(20.0)
    each.climb(1020.0)
    assert not each.has_ended(1020.0)
    each.climb(1020.0 + UNKILLABLE_SECONDS)
    assert each.has_ended(1020.0 + UNKILLABLE_SECONDS)
    assert each.bury(1030.0).given_up


def test_what_the_system_cannot_be_told_is_an_os_error_without_a_word_of_it(start):
    with pytest.raises(OSError, match="encoding cannot write") as caught:
        start("hushhush\ud800", now=1.0)
    assert caught.value.errno == errno.EINVAL
    assert "hush" not in f"{caught.value} {caught.value!r}"
    assert caught.value.__suppress_context__
