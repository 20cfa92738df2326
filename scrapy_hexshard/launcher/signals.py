"""Signals as a list to read, so that a handler does nothing but wake the main loop."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalInbox:
    """Collects the stop signals, and SIGCHLD, between enter and exit; the main thread only.

    A SIGHUP or SIGINT that was ignored before, as by nohup, stays ignored.
    """

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._seen: list[signal.Signals] = []

    def __enter__(self) -> SignalInbox:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._wakeup_before = signal.set_wakeup_fd(self._write)
        for number in (*STOP_SIGNALS, signal.SIGCHLD):
            before = signal.getsignal(number)
            if before is signal.SIG_IGN and number in {signal.SIGHUP, signal.SIGINT}:
                continue
            self._before[number] = before
            signal.signal(number, _do_nothing)
        # A parent that blocked them would make the launcher, and so its workers, deaf.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._before)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._read)
        os.close(self._write)

    def fileno(self) -> int:
        """The descriptor that becomes readable when a signal has come."""
        return self._read

    def take(self) -> list[signal.Signals]:
        """The stop signals that came since the last call, in order."""
        self.peek()
        taken, self._seen = self._seen, []
        return taken

    def peek(self) -> signal.Signals | None:
        """The first stop signal that is still to be taken."""
        with suppress(BlockingIOError):
            numbers = os.read(self._read, 65_536)
            self._seen += [signal.Signals(each) for each in numbers if each in STOP_SIGNALS]
        return self._seen[0] if self._seen else None


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Stand in as a handler, so that Python writes the number to the wake-up descriptor."""
