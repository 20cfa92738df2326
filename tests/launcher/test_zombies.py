"""What is left of a process group."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from scrapy_hexshard.launcher.zombies import holds_zombies_alone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells in /proc")

THREAD_OUTLIVES_THE_FIRST = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
print(flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.fixture
def group() -> Iterator[subprocess.Popen[bytes]]:
    """The leader of a group, with a child, both of which run until they are killed."""
    command = ["sh", "-c", "echo; sleep 600 & wait"]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        yield process
        os.killpg(process.pid, 9)


def test_a_group_in_which_something_runs_holds_more_than_zombies(group):
    assert not holds_zombies_alone(group.pid)
    os.kill(group.pid, 9)
    os.waitid(os.P_PID, group.pid, os.WEXITED | os.WNOWAIT)
    assert not holds_zombies_alone(group.pid)


def test_a_group_of_zombies_holds_nothing_else(until):
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    process.kill()
    until(lambda: holds_zombies_alone(process.pid))
    process.wait()
    assert not holds_zombies_alone(process.pid)


def test_a_process_whose_first_thread_has_ended_is_no_zombie():
    command = [sys.executable, "-c", THREAD_OUTLIVES_THE_FIRST]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        time.sleep(0.3)
        assert not holds_zombies_alone(process.pid)
        process.kill()
