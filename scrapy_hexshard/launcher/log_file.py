"""The log file of one shard: private, appended to, and started anew before it grows too large."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG, S_IWGRP, S_IWOTH

from scrapy_hexshard.errors import LaunchError

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK


def is_open_to_others(folder: Path) -> bool:
    """Whether somebody else may put files, or links, into *folder*."""
    return bool(folder.stat().st_mode & (S_IWGRP | S_IWOTH))


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a log file makes room for a new one: past *max_bytes*, never if that is 0.

    *keep* older files stay, the last of them named ``.1``.
    """

    max_bytes: int = 50 * 2**20
    keep: int = 3


class LogFile:
    """The log of one shard, appended to; only its owner can read it.

    A line longer than ``Rotation.max_bytes`` makes its file that much larger: none is cut in two.
    """

    def __init__(self, folder: Path, shard: int, rotation: Rotation = Rotation()) -> None:
        self._path = folder / f"shard-{shard:04}.log"
        self._rotation = rotation
        self._rotates = False
        self._size = 0
        self._in_line = False
        self.failure: str | None = None  # why lines could not be written
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = self._open()
        except OSError as error:
            is_link = error.errno == errno.ELOOP
            reason = "it is a link, and not to a device" if is_link else error.strerror
            raise LaunchError(f"Cannot write {self._path}: {reason}.") from None

    def write(self, data: bytes) -> None:
        """Append *data*; what keeps it from being written is remembered, not raised."""
        try:
            while data:
                if fitting := self._fitting(data):
                    data = data[self._append(data[:fitting]) :]
                else:
                    self._start_anew()
        except OSError as error:
            self.failure = f"cannot write {self._path}: {error.strerror}"

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _open(self) -> int:
        # A named pipe without a reader is refused rather than waited for.
        fd = os.open(self._path, _FLAGS | self._link_flag(), 0o600)
        os.set_blocking(fd, True)
        status = os.fstat(fd)
        # It may be there already, readable for all; but a link to /dev/null is left alone.
        if S_ISREG(status.st_mode):
            os.fchmod(fd, 0o600)
            self._rotates = self._rotation.max_bytes > 0
            self._size = status.st_size
            self._in_line = False
        return fd

    def _link_flag(self) -> int:
        # Who may write to the folder must not choose which file of ours grows. A device does not.
        leads_to_device = self._path.is_symlink() and self._path.is_char_device()
        return 0 if leads_to_device else os.O_NOFOLLOW

    def _append(self, data: bytes) -> int:
        written = os.write(self._fd, data)
        self._size += written
        self._in_line = data[written - 1 : written] != b"\n"
        return written

    def _fitting(self, data: bytes) -> int:
        """How much of *data* belongs into the present file; 0 once that is full."""
        room = self._rotation.max_bytes - self._size
        if not self._rotates or len(data) <= room:
            return len(data)
        if whole_lines := data.rfind(b"\n", 0, max(0, room)) + 1:
            return whole_lines
        if self._in_line or self._size == 0:
            return data.find(b"\n") + 1 or len(data)
        return 0

    def _start_anew(self) -> None:
        try:
            self._move_on()
            fd = self._open()
        except OSError as error:
            self._rotates = False
            self.failure = f"cannot start {self._path} anew: {error.strerror}"
            return
        os.close(self._fd)
        self._fd = fd

    def _move_on(self) -> None:
        if self._rotation.keep == 0:
            self._path.unlink()
            return
        for number in range(self._rotation.keep - 1, 0, -1):
            with suppress(FileNotFoundError):
                self._numbered(number).replace(self._numbered(number + 1))
        self._path.replace(self._numbered(1))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
