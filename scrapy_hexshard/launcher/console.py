"""Writes to the terminal from a thread of its own, so that nobody waits for it."""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import suppress
from functools import partial

CAPACITY_BYTES = 4_194_304
PATIENCE_SECONDS = 5.0
OWN_NAME = "hexdigest-shard"

_WRITE_BYTES = 4096  # small, so that a slow reader is told apart from none


class Console:
    """Lines for standard output and error, written in the order in which they came.

    When the reader is slower than the workers, lines are dropped and counted. When it is gone, as
    a closed terminal is, they are lost without an error: no worker may stop because of that.
    """

    def __init__(self, out: int = 1, err: int = 2, capacity: int = CAPACITY_BYTES) -> None:
        self._out = out
        self._err = err
        self._capacity = capacity
        self._lines: deque[tuple[int, bytes]] = deque()
        self._waiting = 0  # bytes queued
        self._progress = 0
        self._closing = False
        self._ended = False
        self._changed = threading.Condition()
        self.dropped = 0
        threading.Thread(target=self._run, name="hexshard-console", daemon=True).start()

    def show(self, line: bytes) -> None:
        """Queue a worker's line for standard output."""
        self._put(self._out, line, self._capacity)

    def say(self, text: str) -> None:
        """Queue a sentence of the launcher's own for standard error."""
        self.print(f"{OWN_NAME}: {text}\n")

    def print(self, text: str) -> None:
        """Queue *text* for standard error, even when no room is left for the workers' lines."""
        self._put(self._err, text.encode(errors="replace"), 2 * self._capacity)

    def close(self, patience: float = PATIENCE_SECONDS) -> None:
        """Write what is queued, unless the reader takes nothing for *patience* seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            seen = -1
            while not self._ended and seen != self._progress:
                seen = self._progress
                self._changed.wait_for(partial(self._moved_on, seen), patience)

    def _moved_on(self, seen: int) -> bool:
        return self._ended or self._progress > seen

    def _put(self, fd: int, line: bytes, capacity: int) -> None:
        with self._changed:
            if self._waiting + len(line) > capacity:
                self.dropped += 1
                return
            self._lines.append((fd, line))
            self._waiting += len(line)
            self._changed.notify_all()

    def _run(self) -> None:
        while batch := self._take():
            fd, data = batch
            for start in range(0, len(data), _WRITE_BYTES):
                _write(fd, data[start : start + _WRITE_BYTES])
                with self._changed:
                    self._progress += 1
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _take(self) -> tuple[int, bytes] | None:
        """The next lines for one descriptor, or None once closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._closing)
            if not self._lines:
                return None
            fd, data = self._lines.popleft()
            lines = [data]
            while self._lines and self._lines[0][0] == fd and len(lines) < 100:
                lines.append(self._lines.popleft()[1])
            self._waiting -= sum(map(len, lines))
            return fd, b"".join(lines)


def _write(fd: int, data: bytes) -> None:
    with suppress(OSError):  # the terminal is gone, or the reader at the end of the pipe
        while data:
            data = data[os.write(fd, data) :]
