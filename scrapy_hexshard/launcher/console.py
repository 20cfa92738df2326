"""Writes to the terminal from a thread of its own, so that nobody waits for it."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from scrapy_hexshard.launcher.live_screen import Screen, View, terminal_size

CAPACITY_BYTES = 4_194_304
PATIENCE_SECONDS = 5.0
OWN_NAME = "hexdigest-shard"

_WRITE_BYTES = 4096  # small, so that a slow reader is told apart from none
_BATCH_BYTES = 262_144
_DRAW_SECONDS = 1.0
_PAUSE_SECONDS = 0.1  # between two drawings of the view, for lines to come together


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
        self._screen: Screen | None = None
        self._shared: frozenset[int] = frozenset()  # the descriptors that lead to the screen
        self._view_over = False
        self._drawn_at: float | None = None
        self._draw_at = 0.0
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

    def show_view(self, view: View) -> None:
        """Keep what *view* returns below all lines, drawn anew once a second."""
        with self._changed:
            self._screen = Screen(view, partial(terminal_size, self._err))
            self._shared = frozenset(fd for fd in (self._out, self._err) if os.isatty(fd))
            self._draw_at = time.monotonic() + _DRAW_SECONDS
            self._changed.notify_all()

    def lose_place(self) -> None:
        """Others have written to the terminal: draw the next view below that. Signal-safe."""
        if screen := self._screen:
            screen.lost = True

    def end_view(self) -> None:
        """Remove the view; what is written from now on stays."""
        with self._changed:
            self._view_over = True
            self._changed.notify_all()

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
        while (batch := self._take()) is not None:
            for fd, data in self._with_view(*batch):
                self._write(fd, data)
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _take(self) -> tuple[int, bytes] | None:
        """The next lines for one descriptor, or none if the view is due; None once closed."""
        with self._changed:
            self._pause()
            while not (self._lines or self._closing or self._view_is_over or self._is_due):
                self._changed.wait(self._draw_at - time.monotonic() if self._screen else None)
            if not self._lines:
                return None if self._closing and not self._screen else (self._err, b"")
            fd, data = self._lines.popleft()
            lines, size = [data], len(data)
            while self._lines and self._lines[0][0] == fd and size < _BATCH_BYTES:
                lines.append(self._lines.popleft()[1])
                size += len(lines[-1])
            self._waiting -= size
            return fd, b"".join(lines)

    @property
    def _view_is_over(self) -> bool:
        return self._view_over and self._screen is not None

    @property
    def _is_due(self) -> bool:
        return self._screen is not None and time.monotonic() >= self._draw_at

    def _pause(self) -> None:
        """Let lines come together, as the view is written again below each batch of them."""
        if self._screen and self._drawn_at is not None and not self._lines:
            rest = self._drawn_at + _PAUSE_SECONDS - time.monotonic()
            self._changed.wait_for(lambda: self._closing or self._view_is_over, max(0.0, rest))

    def _with_view(self, fd: int, data: bytes) -> Iterator[tuple[int, bytes]]:
        """What to write where, so that the view, if there is one, stands below *data*."""
        screen, now = self._screen, time.monotonic()
        if screen is None:
            yield fd, data
        elif self._view_is_over or self._closing:
            self._screen = None
            yield self._err, screen.clear() if self._drawn_at is not None else b""
            yield fd, data
        elif now >= self._draw_at or (self._drawn_at is not None and fd in self._shared):
            if fd not in self._shared:
                yield fd, data
                data = b""
            yield self._err, self._drawn(screen, data, now)
        else:
            yield fd, data

    def _drawn(self, screen: Screen, data: bytes, now: float) -> bytes:
        anew = now >= self._draw_at
        try:
            data = screen.paint(data, anew=anew)
        except Exception as error:  # noqa: BLE001 - a fault of the view must not cost the lines
            self._screen = None
            fault = f"{OWN_NAME}: no live view, as it failed: {type(error).__name__}: {error}\n"
            return data + fault.encode(errors="replace")
        self._drawn_at = now
        if anew:
            self._draw_at = now + _DRAW_SECONDS
        return data

    def _write(self, fd: int, data: bytes) -> None:
        for start in range(0, len(data), _WRITE_BYTES):
            _write(fd, data[start : start + _WRITE_BYTES])
            with self._changed:
                self._progress += 1
                self._changed.notify_all()


def _write(fd: int, data: bytes) -> None:
    with suppress(OSError):  # the terminal is gone, or the reader at the end of the pipe
        while data:
            data = data[os.write(fd, data) :]
