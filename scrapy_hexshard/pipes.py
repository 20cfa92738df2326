"""The two pipes between a launcher and its worker: a lifeline down, a status line up.

The launcher hands each descriptor over as ``number:inode`` in the environment. A worker takes both
once, checks that the number still is that pipe, keeps them from its own children and forgets the
variables, so that a program it starts can neither hold the lifeline open nor speak in its name.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import termios
import threading
from collections.abc import Callable, MutableMapping

LIFELINE_VARIABLE = "HEXSHARD_LIFELINE"
STATUS_VARIABLE = "HEXSHARD_STATUS"
MAX_LINE_BYTES = 4096  # POSIX PIPE_BUF on Linux: a write up to this size is never interleaved

# A launcher that is stopped for long must still find the other events when it goes on.
_EXPENDABLE = "progress"
_PIPE_BYTES = 65_536


def describe_descriptor(fd: int) -> str:
    """The ``number:inode`` form of *fd* in which it travels to a child."""
    return f"{fd}:{os.fstat(fd).st_ino}"


class LauncherPipes:
    """A worker's ends of the pipes; without a launcher every call does nothing."""

    def __init__(self, lifeline: int | None = None, status: int | None = None) -> None:
        self._lifeline = lifeline
        self._status = status
        self.dropped = 0  # status lines the launcher did not take

    @classmethod
    def take(cls, environ: MutableMapping[str, str] = os.environ) -> LauncherPipes:
        """The pipes named in *environ*, whose variables are removed."""
        lifeline = _take_descriptor(environ, LIFELINE_VARIABLE)
        status = _take_descriptor(environ, STATUS_VARIABLE)
        if status is not None:
            os.set_blocking(status, False)
        return cls(lifeline, status)

    def watch(self, on_gone: Callable[[], None]) -> None:
        """Call *on_gone* from a thread once the launcher has gone, however it went."""
        if self._lifeline is None:
            return
        fd, self._lifeline = self._lifeline, None
        threading.Thread(
            target=_wait_for_end, args=(fd, on_gone), name="hexshard-lifeline", daemon=True
        ).start()

    def report(self, event: str, **facts: object) -> None:
        """Send one status line; it never blocks, and what the launcher does not take is counted.

        Progress is kept out of the second half of the pipe, which is for the other events.
        """
        if self._status is None:
            return
        line = json.dumps({"event": event, **facts}).encode() + b"\n"
        if len(line) > MAX_LINE_BYTES or (event == _EXPENDABLE and _is_half_full(self._status)):
            self.dropped += 1
            return
        try:
            sent = os.write(self._status, line)
        except BlockingIOError:
            sent = 0
        except OSError:
            # The reader is gone: the lifeline says so too, and ends this worker.
            self._status = None
            return
        self.dropped += sent != len(line)


def _is_half_full(pipe: int) -> bool:
    # A user with very many pipes gets smaller ones.
    size = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) if sys.platform == "linux" else _PIPE_BYTES
    waiting = fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))
    return 2 * int.from_bytes(waiting, sys.byteorder) >= size


def _take_descriptor(environ: MutableMapping[str, str], variable: str) -> int | None:
    number, _, inode = environ.pop(variable, "").partition(":")
    if not (number.isascii() and number.isdigit()):
        return None
    fd = int(number)
    try:
        if str(os.fstat(fd).st_ino) != inode:
            return None
    except (OSError, OverflowError):
        return None
    os.set_inheritable(fd, False)
    return fd


def _wait_for_end(fd: int, on_gone: Callable[[], None]) -> None:
    try:
        while os.read(fd, 1):
            pass
    finally:
        os.close(fd)
    on_gone()
