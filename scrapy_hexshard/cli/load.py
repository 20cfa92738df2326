"""``hexdigest-shard load``: stores the keys of lists of URLs and ids."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from scrapy_hexshard.cli.key_lines import STDIN, check_readable, lacks_scheme, read_key_lines
from scrapy_hexshard.sharding import check_count
from scrapy_hexshard.store import open_store
from scrapy_hexshard.store.contract import WorkStore

if TYPE_CHECKING:
    from rich.text import Text


INTERRUPTED = 130
_BATCH = 5_000
_FAULTS_SHOWN = 10


@dataclass
class Tally:
    """What a load did until now."""

    added: int = 0
    known: int = 0
    invalid: int = 0
    faults: list[str] = field(default_factory=list)
    schemeless: int = 0
    first_schemeless: str = ""
    started: float = field(default_factory=time.monotonic)

    def stored(self, keys: int, added: int) -> None:
        self.added += added
        self.known += keys - added

    def refused(self, place: str, fault: str) -> None:
        self.invalid += 1
        if len(self.faults) < _FAULTS_SHOWN:
            self.faults.append(f"{place}: {fault}")

    def lacking_scheme(self, place: str) -> None:
        self.schemeless += 1
        self.first_schemeless = self.first_schemeless or place

    def __str__(self) -> str:
        return f"{self.added:,} added, {self.known:,} known, {self.invalid:,} invalid"


def add_parser(subparsers: Any) -> None:
    """Add the command to those of ``hexdigest-shard``."""
    parser: ArgumentParser = subparsers.add_parser(
        "load",
        help="store the keys of lists of URLs or ids",
        description="Add the keys of text files, one URL or id a line, to a store.\n"
        "Blank lines and lines that start with # are skipped, and so are keys that are\n"
        "known: loading a list again is harmless.",
        epilog="example:\n  hexdigest-shard load crawl.sqlite3 urls.txt --shards 4",
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("store", metavar="STORE", help="path of the store, made if it is new")
    parser.add_argument("files", nargs="+", metavar="FILE", help="text file, or - for stdin")
    parser.add_argument(
        "--shards", type=int, metavar="N", help="number of shards; a new store needs it"
    )
    parser.set_defaults(run=run)


def run(arguments: Namespace) -> int:
    """Store the keys and say what was added. Raises SettingError, ShardError or StoreError."""
    shards = None if arguments.shards is None else check_count(arguments.shards)
    for name in arguments.files:
        check_readable(name)
    tally = Tally()
    with open_store(arguments.store, shards) as store:
        try:
            with _progress(tally, arguments.files):
                for name in arguments.files:
                    _load(store, name, tally)
        except KeyboardInterrupt:
            sys.stderr.write("Stopped. What was added stays: load again to go on.\n")
            return INTERRUPTED
        finally:
            _report(tally)
    return 0


def _load(store: WorkStore, name: str, tally: Tally) -> None:
    keys = _valid_keys(name, tally)
    while batch := list(islice(keys, _BATCH)):
        tally.stored(len(batch), store.enqueue(batch))


def _valid_keys(name: str, tally: Tally) -> Iterator[str]:
    for line in read_key_lines(name):
        if line.fault:
            tally.refused(f"{name}:{line.number}", line.fault)
            continue
        if lacks_scheme(line.key):
            tally.lacking_scheme(f"{name}:{line.number}")
        yield line.key


@contextmanager
def _progress(tally: Tally, names: list[str]) -> Iterator[None]:
    typing_keys = STDIN in names and sys.stdin.isatty()
    if not sys.stderr.isatty() or typing_keys:
        yield
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    with Live(
        get_renderable=lambda: _progress_line(tally),
        console=Console(stderr=True),
        refresh_per_second=4,
        transient=True,
    ):
        yield


def _progress_line(tally: Tally) -> Text:
    from rich.text import Text  # noqa: PLC0415

    rate = (tally.added + tally.known) / max(time.monotonic() - tally.started, 0.001)
    return Text(f"Loading: {tally} ({rate:,.0f} keys/s)", no_wrap=True, overflow="ellipsis")


def _report(tally: Tally) -> None:
    sys.stdout.write(f"{tally}.\n")
    sys.stderr.writelines(f"{line}\n" for line in _warnings(tally))


def _warnings(tally: Tally) -> Iterator[str]:
    yield from tally.faults
    if tally.invalid > len(tally.faults):
        yield f"... and {tally.invalid - len(tally.faults):,} more."
    if tally.invalid:
        yield f"Warning: {_lines(tally.invalid, 'was', 'were')} not valid and left out."
    if tally.schemeless:
        yield (
            f"Warning: {_lines(tally.schemeless, 'looks', 'look')} like a URL without https:// and "
            f"became an id, first {tally.first_schemeless}."
        )


def _lines(count: int, one: str, many: str) -> str:
    return f"1 line {one}" if count == 1 else f"{count:,} lines {many}"
