"""The processes of one crawl: started together, killed together, and how they ended."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

GLANCE = 0.01  # seconds between two looks


@dataclass(frozen=True, slots=True)
class Ended:
    """How the processes of a crawl ended; times in seconds."""

    codes: tuple[int, ...]
    seconds: float
    cpu: float  # of the processes and of those they waited for
    in_time: bool


class Processes:
    """Processes that are running; ``wait`` tells how they ended."""

    def __init__(
        self, commands: Iterable[Sequence[str]], cwd: Path, env: Mapping[str, str], logs: Path
    ) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self._cpu = 0.0
        self._began = time.monotonic()
        self._all = [
            _start(command, cwd, env, logs / f"{number}.log")
            for number, command in enumerate(commands)
        ]

    def pids(self) -> list[int]:
        """Of those that run."""
        return [process.pid for process in self._all if process.returncode is None]

    def wait(self, patience: float, is_time: Callable[[], bool] | None = None) -> bool:
        """Wait until all have ended, or *is_time* says so; whether that was within *patience*."""
        while self.pids() and not (is_time and is_time()):
            if time.monotonic() - self._began > patience:
                return False
            time.sleep(GLANCE)
            self._reap()
        return True

    def stop(self) -> None:
        """Kill what still runs and what that has started."""
        kill([*children_of(self.pids()), *self.pids()])
        self.wait(float("inf"))

    def ended(self, *, in_time: bool) -> Ended:
        """How they ended; for when none runs any more."""
        codes = tuple(process.returncode for process in self._all)
        return Ended(codes, time.monotonic() - self._began, self._cpu, in_time)

    def _reap(self) -> None:
        for process in self._all:
            if process.returncode is not None:
                continue
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                self._cpu += used.ru_utime + used.ru_stime


@contextmanager
def started(
    commands: Iterable[Sequence[str]], cwd: Path, env: Mapping[str, str], logs: Path
) -> Iterator[Processes]:
    """The processes of *commands*, which are gone at the end of the block, whatever happens."""
    processes = Processes(commands, cwd, env, logs)
    try:
        yield processes
    finally:
        processes.stop()


def kill(pids: Iterable[int]) -> None:
    """``kill -9``, at once."""
    for pid in pids:
        with suppress(ProcessLookupError):  # it has just ended by itself
            os.kill(pid, signal.SIGKILL)


def children_of(pids: Iterable[int]) -> list[int]:
    """The processes that these have started themselves."""
    found: list[int] = []
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):  # it has just ended by itself
                found += map(int, thread.read_text().split())
    return found


def _start(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
