"""Opens what a list is read from, a file, a pipe or stdin, compressed or not, as bounded lines."""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Iterator
from io import BufferedReader, FileIO
from pathlib import Path
from stat import S_ISDIR
from typing import Self

from scrapy_hexshard.errors import SettingError

STDIN = "-"
_GZIP_MAGIC = b"\x1f\x8b"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_BUFFER_BYTES = 131_072


class BrokenInputError(SettingError):
    """An input that cannot be read to its end; what came before is good."""


def check_readable(name: str) -> None:
    """Raise SettingError unless there is a file *name* to read, or stdin if it is ``-``."""
    if problem := _why_unreadable(name):
        raise SettingError(f"Cannot read {name}: {problem}.")


def is_file(name: str) -> bool:
    """Whether *name* is a file, which has a size and can be read more than once."""
    return name != STDIN and Path(name).is_file()


class Input:
    """The open input *name*: its lines, and how far it has been read. A context manager."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.line = 0  # the number of the line read last, from 1
        self.cut = False  # whether that line was longer than allowed, and lost its end
        try:
            self._file = _opened(name)
            self._source = _decompressed(BufferedReader(self._file, _BUFFER_BYTES))
        except OSError as error:
            raise SettingError(f"Cannot read {name}: {error.strerror}.") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()
        self._file.close()

    @property
    def position(self) -> int:
        """How many bytes of the file, as it is stored, have been read; 0 for a pipe."""
        return self._file.tell() if self._file.seekable() else 0

    @property
    def is_utf_16(self) -> bool:
        """Whether what comes next is the mark with which UTF-16 text begins."""
        return self._source.peek(2)[:2] in _UTF_16

    def lines(self, longest: int) -> Iterator[bytes]:
        """Its lines with their line ends; of one over *longest* bytes only so many.

        Raises BrokenInputError, with the place, if the input cannot be read to its end.
        """
        try:
            while line := self._source.readline(longest):
                self.cut = len(line) == longest and not line.endswith(b"\n")
                if self.cut:
                    self._skip_line(longest)
                self.line += 1
                yield line
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            reason = "is cut short" if isinstance(error, EOFError) else "is damaged"
            place = f"The compressed file {self.name} {reason} after line {self.line}."
            raise BrokenInputError(f"{place} Give a whole copy of it.") from error
        except OSError as error:
            raise BrokenInputError(
                f"Cannot read {self.name} to its end, but to line {self.line}: {error.strerror}."
            ) from error

    def _skip_line(self, longest: int) -> None:
        rest = self._source.readline(longest)
        while len(rest) == longest and not rest.endswith(b"\n"):
            rest = self._source.readline(longest)


def _why_unreadable(name: str) -> str | None:
    if name == STDIN:
        return None if sys.stdin else "it is closed"
    # Without opening it: a pipe can be opened only once.
    try:
        mode = Path(name).stat().st_mode
    except OSError as error:
        return error.strerror
    if S_ISDIR(mode):
        return "it is a folder"
    return None if os.access(name, os.R_OK) else "permission denied"


def _opened(name: str) -> FileIO:
    if name == STDIN:
        return FileIO(sys.stdin.fileno(), closefd=False)
    return FileIO(name)


def _decompressed(file: BufferedReader) -> BufferedReader | gzip.GzipFile:
    # By what it holds, not by its name: stdin has none, and names are wrong at times.
    if not file.peek(2).startswith(_GZIP_MAGIC):
        return file
    # Not buffered once more: of a file that is cut short all that is there comes out.
    return gzip.GzipFile(fileobj=file)
