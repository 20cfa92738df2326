"""``hexdigest-shard export``: writes the items of a crawl as JSON lines."""

from __future__ import annotations

import os
import secrets
import signal
import stat
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, NoReturn

from scrapy_hexshard.errors import HexShardError
from scrapy_hexshard.store import open_store

STDOUT = "-"
_END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_SQLITE_MAGIC = b"SQLite format 3\0"


def add_parser(subparsers: Any) -> None:
    """Add the command to those of ``hexdigest-shard``."""
    parser: ArgumentParser = subparsers.add_parser(
        "export",
        help="write the items as JSON lines",
        description="Write each stored item (HEXSHARD_ITEMS) as one line of JSON, in the order\n"
        "they were stored. A file is replaced only when the export is complete.",
        epilog="example:\n  hexdigest-shard export crawl.sqlite3 items.jsonl",
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("store", metavar="STORE", help="path of the store")
    parser.add_argument("file", metavar="FILE", help="file to write, or - for stdout")
    parser.set_defaults(run=run)


def run(arguments: Namespace) -> int:
    """Write the items. Raises HexShardError if they cannot be written, or StoreError."""
    with _ending_on_signals(), open_store(arguments.store, readonly=True) as store:
        try:
            count = _write(store.item_lines(), arguments.file)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise HexShardError(f"Cannot write {arguments.file}: {error.strerror}.") from error
    place = "stdout" if arguments.file == STDOUT else arguments.file
    sys.stderr.write(f"{count:,} {'item' if count == 1 else 'items'} written to {place}.\n")
    if not count:
        sys.stderr.write(
            "Workers store items only with HEXSHARD_ITEMS = True. Keys that were done without it "
            "are not crawled again: crawl them into a new store.\n"
        )
    return 0


def _write(lines: Iterable[str], name: str) -> int:
    if name == STDOUT:
        if sys.__stdout__ is None:
            raise HexShardError("Cannot write to stdout: it is closed.")
        return _write_lines(lines, sys.stdout.buffer)
    target = Path(name)
    if target.exists() and not target.is_file():
        with target.open("wb") as pipe:
            return _write_lines(lines, pipe)
    # The file a link points to is replaced, not the link.
    with _replacing(target.resolve()) as file:
        return _write_lines(lines, file)


def _write_lines(lines: Iterable[str], file: BinaryIO) -> int:
    count = 0
    for line in lines:
        file.write(line.encode() + b"\n")
        count += 1
    file.flush()
    return count


@contextmanager
def _replacing(target: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of *target* in one step, or leaves no trace."""
    mode = _mode_of(target)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with draft.open("xb") as file:
            if mode is not None:
                draft.chmod(mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(target.parent)


def _mode_of(target: Path) -> int | None:
    if not target.exists():
        return None
    with target.open("rb") as old:
        if old.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC:
            raise HexShardError(
                f"{target} is a database and was not replaced: name another file for the items."
            )
    return stat.S_IMODE(target.stat().st_mode)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _ending_on_signals() -> Iterator[None]:
    """Lets what must be undone be undone when the program is told to end."""
    taken = [number for number in _END_SIGNALS if signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
