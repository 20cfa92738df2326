"""Local feed files: flushed as units end, and pressed to disk before the store says *done*."""

from __future__ import annotations

import logging
import os
import threading
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from typing import IO

from scrapy_hexshard.errors import HexShardError

logger = logging.getLogger(__name__)

LINE_FORMATS = frozenset({"jsonlines", "jsonl", "jl", "csv"})


class FeedError(HexShardError):
    """A feed that cannot be written, so that what should be in it is not complete."""


class FeedFile:
    """An open file of a feed, called *name* in messages.

    *folders* are those whose entries are new with it.
    """

    def __init__(self, file: IO[bytes], name: str, folders: list[Path]) -> None:
        self.name = name
        self.closed = False  # by Scrapy; all that will ever be in it has been handed over
        self._file = file
        self._folders = folders
        # A descriptor of our own: Scrapy may close the file while the store's thread is at it.
        self._descriptor = os.dup(file.fileno()) if _is_regular(file) else None

    def flush(self) -> None:
        """Hand to the system what has been written so far; raises FeedError."""
        try:
            if not self._file.closed:
                self._file.flush()
        except OSError as error:
            raise self._error(error) from error

    def press(self, *, durable: bool) -> None:
        """Wait until what was flushed is on disk, if *durable*; raises FeedError."""
        closed = self.closed  # before: what is written meanwhile is left to the next call
        if self._descriptor is None:
            return
        try:
            if durable:
                os.fsync(self._descriptor)
                self._press_folders()
        except OSError as error:
            raise self._error(error) from error
        if closed:
            self.release()

    def release(self) -> None:
        """Close the descriptor."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _press_folders(self) -> None:
        while self._folders:
            folder = os.open(self._folders[-1], os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
            self._folders.pop()

    def _error(self, error: OSError) -> FeedError:
        return FeedError(
            f"Cannot write the feed {self.name}: {error.strerror or error}. Look at the disk, and "
            "whether it is full, and start again: keys whose items are not in it are not done."
        )


class FeedFiles:
    """The files with lines that may not be on disk yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._written: set[FeedFile] = set()
        self._error: FeedError | None = None
        self._released = False

    # From the reactor's thread.

    def flush(self, file: FeedFile) -> None:
        """Hand the lines of *file* to the system, and remember to press them; raises FeedError."""
        file.flush()
        with self._lock:
            self._written.add(file)

    def closed(self, file: FeedFile) -> None:
        """Scrapy has closed *file*."""
        file.closed = True
        if self._released:
            file.release()
            return
        with self._lock:
            self._written.add(file)

    def release(self) -> None:
        """Close what is still open: nobody presses any more."""
        self._released = True
        with self._lock:
            files, self._written = self._written, set()
        for file in files:
            file.release()

    # From the store's thread.

    def press(self, durable: bool) -> None:
        """Have on disk, if *durable*, all that has been flushed before this call.

        Raises FeedError, and from then on always: after a failure the system may have forgotten
        what it did not write.
        """
        if self._error is not None:
            raise self._error
        with self._lock:
            files, self._written = self._written, set()
        for file in files:
            try:
                file.press(durable=durable)
            except FeedError as error:
                self._error = error
                raise


def new_folders(path: Path) -> list[Path]:
    """The folders that get a new entry when *path* is made, outermost last."""
    folders = []
    for each in (path, *path.parents):
        if each.exists():
            break
        folders.append(each.parent)
    return folders


def end_torn_line(file: IO[bytes], path: Path) -> None:
    """Keep the next line off one that a kill or a power cut has left without its end."""
    with suppress(FileNotFoundError), path.open("rb") as written:
        if written.seek(0, os.SEEK_END) == 0:
            return
        written.seek(-1, os.SEEK_END)
        if written.read(1) != b"\n":
            file.write(b"\n")
            logger.warning(
                "The last line of %s has no end, as a kill may leave it. It stays; what follows "
                "begins on a line of its own.",
                path,
            )


def _is_regular(file: IO[bytes]) -> bool:
    try:
        return S_ISREG(os.fstat(file.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):
        return False  # no file of the system
