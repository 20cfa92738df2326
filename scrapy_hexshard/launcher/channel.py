"""One place to write to, with a queue and a thread of its own, so that nobody waits for it."""

from __future__ import annotations

import errno
import os
import select
import threading
import time
from collections import deque
from collections.abc import Iterator
from functools import partial

from scrapy_hexshard.launcher.live_screen import Screen, View, terminal_size
from scrapy_hexshard.launcher.threads import start_thread

_WRITE_BYTES = 4096  # small, so that a slow reader is told apart from none
_BATCH_BYTES = 262_144
_DRAW_SECONDS = 1.0
_PAUSE_SECONDS = 0.1  # between two drawings of the view, for lines to come together
OWN_NAME = "hexdigest-shard"
_GONE = {errno.EPIPE, errno.EIO}  # the reader at the end of the pipe, or the terminal


class Channel:
    """Writes lines to one place in the order in which they came; a view is written to *view_fd*.

    A line for which there is no room, or that cannot be written, is counted as dropped. When the
    reader is gone, as a closed terminal is, all are lost without a word: nobody is there to miss
    them.

    Raises LaunchError if its thread cannot be started.
    """

    def __init__(self, view_fd: int) -> None:
        self._view_fd = view_fd
        self._lines: deque[tuple[int, bytes]] = deque()
        self._waiting = 0  # bytes queued
        self._in_hand = 0  # lines taken from the queue that are not written yet
        self._progress = 0
        self._closing = False
        self._ended = False
        self._changed = threading.Condition()
        self._screen: Screen | None = None
        self._view_over = False
        self._drawn_at: float | None = None
        self._draw_at = 0.0
        self.dropped = 0
        start_thread(self._run, name=f"hexshard-console-{view_fd}")

    def put(self, fd: int, lines: bytes, capacity: int) -> None:
        """Queue *lines* for *fd*, unless more than *capacity* bytes would wait then."""
        with self._changed:
            if self._waiting + len(lines) > capacity:
                self.dropped += 1
                return
            self._lines.append((fd, lines))
            self._waiting += len(lines)
            self._changed.notify_all()

    def show_view(self, view: View) -> None:
        """Keep what *view* returns below all lines, drawn anew once a second."""
        with self._changed:
            self._screen = Screen(view, partial(terminal_size, self._view_fd))
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

    def close(self, patience: float) -> None:
        """Write what is queued, unless the reader takes nothing for *patience* seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            seen = -1
            while not self._ended and seen != self._progress:
                seen = self._progress
                self._changed.wait_for(partial(self._moved_on, seen), patience)
            if not self._ended:
                self.dropped += self._in_hand + sum(line.count(b"\n") for _, line in self._lines)
                self._lines.clear()
                self._in_hand = 0

    def _moved_on(self, seen: int) -> bool:
        return self._ended or self._progress > seen

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
                return None if self._closing and not self._screen else (self._view_fd, b"")
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
            yield self._view_fd, screen.clear() if self._drawn_at is not None else b""
            yield fd, data
        elif now >= self._draw_at or self._drawn_at is not None:
            yield self._view_fd, self._drawn(screen, data, now)
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
        self._in_hand = data.count(b"\n")
        for start in range(0, len(data), _WRITE_BYTES):
            piece = data[start : start + _WRITE_BYTES]
            lost = _write(fd, piece)
            with self._changed:
                self.dropped += lost.count(b"\n")
                self._in_hand = max(0, self._in_hand - piece.count(b"\n"))
                self._progress += 1
                self._changed.notify_all()


def write_all(fd: int, data: bytes) -> None:
    """Write *data*, however often the reader has to be waited for; raises OSError."""
    while data:
        data = data[_write_some(fd, data) :]


def _write(fd: int, data: bytes) -> bytes:
    """Write *data*, and return what of it was lost although somebody may read it."""
    while data:
        try:
            data = data[_write_some(fd, data) :]
        except OSError as error:
            return b"" if error.errno in _GONE else data
    return b""


def _write_some(fd: int, data: bytes) -> int:
    try:
        return os.write(fd, data)
    except BlockingIOError:  # whoever shares the file can have made it so
        select.select([], [fd], [])
        return 0
