"""``hexdigest-shard load``: stores the keys of lists of URLs and ids."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from scrapy_hexshard.cli.inputs import BrokenInputError
from scrapy_hexshard.cli.listing import Listing, add_listing_arguments
from scrapy_hexshard.cli.progress import progress_bar
from scrapy_hexshard.cli.rejects import Rejects
from scrapy_hexshard.cli.schemeless import Schemeless
from scrapy_hexshard.cli.shares import spread
from scrapy_hexshard.errors import SettingError
from scrapy_hexshard.sharding import check_count
from scrapy_hexshard.store import open_store
from scrapy_hexshard.store.contract import Work, WorkStore

INTERRUPTED = 130
REJECTED = 1
_BATCH = 5_000
_BATCH_PAYLOAD_CHARACTERS = 8_000_000


@dataclass
class Tally:
    """What a load did until now."""

    rejects: Rejects
    added: int = 0
    known: int = 0
    schemeless: Schemeless = field(default_factory=Schemeless)

    def stored(self, keys: int, added: int) -> None:
        self.added += added
        self.known += keys - added

    @property
    def records(self) -> int:
        return self.added + self.known + self.rejects.count

    def __str__(self) -> str:
        return f"{self.added:,} added, {self.known:,} known, {self.rejects.count:,} invalid"


def add_parser(subparsers: Any) -> None:
    """Add the command to those of ``hexdigest-shard``."""
    parser: ArgumentParser = subparsers.add_parser(
        "load",
        help="store the keys of lists of URLs or ids",
        description="Add the keys of lists to a store: one URL or id a line, a column of CSV, or\n"
        "a field of JSON lines. Known keys are not added again: after Ctrl-C, or a mistake\n"
        "in the list, load it again.",
        epilog="examples:\n"
        "  hexdigest-shard load crawl.sqlite3 urls.txt --shards 4\n"
        "  hexdigest-shard load crawl.sqlite3 products.csv.gz --id-field sku --shards 4",
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("store", metavar="STORE", help="path of the store, made if it is new")
    parser.add_argument(
        "--shards", type=int, metavar="N", help="number of shards; a new store needs it"
    )
    add_listing_arguments(parser)
    parser.add_argument(
        "--reject-file",
        type=Path,
        metavar="FILE",
        help="write each rejected record's file, line and reason there, as JSON lines",
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 if anything was rejected"
    )
    parser.set_defaults(run=run)


def run(arguments: Namespace) -> int:
    """Store the keys and say what was added; returns the exit code.

    Raises SettingError, ShardError or StoreError.
    """
    shards = None if arguments.shards is None else check_count(arguments.shards)
    listing = Listing(arguments)
    with Rejects(arguments.reject_file, listing.names) as rejects:
        tally = Tally(rejects)
        batches = _batches(listing, tally)
        # What is wrong with the beginning of a pipe is to show before a store is made.
        first = [] if listing.is_checked else next(batches, [])
        with open_store(arguments.store, shards) as store:
            code = _load(store, chain([first], batches), listing, tally)
    if arguments.strict and rejects.count and not code:
        sys.stderr.write("Exit code 1, as --strict was given. What was added stays.\n")
        return REJECTED
    return code


def _load(
    store: WorkStore, batches: Iterable[list[str | Work]], listing: Listing, tally: Tally
) -> int:
    before = _keys_by_shard(store)
    try:
        with progress_bar(listing, lambda: f"Loading: {tally}", lambda: tally.records) as advance:
            for batch in batches:
                tally.stored(len(batch), store.enqueue(batch))
                advance()
    except KeyboardInterrupt:
        sys.stderr.write("Stopped. What was added stays: load again to go on.\n")
        return INTERRUPTED
    finally:
        sys.stdout.write(f"{tally}.\n")
        sys.stderr.writelines(f"{line}\n" for line in _warnings(tally, listing.noun))
        _report_shards(tally.added, before, _keys_by_shard(store))
    return 0


def _batches(listing: Listing, tally: Tally) -> Iterator[list[str | Work]]:
    """The work of the records; of an input that ends in an error, what could be read as well."""
    batch: list[str | Work] = []
    room, characters = _BATCH, 0
    error: SettingError | None = None
    try:
        for record in listing:
            work, room = record.work, room - 1
            if work is None:
                tally.rejects.add(listing.name, record.number, record.fault)
            else:
                key = work if isinstance(work, str) else work.key
                tally.schemeless.look(key, listing.name, record.number)
                batch.append(work)
                characters += 0 if isinstance(work, str) else len(work.payload or "")
            if not room or characters >= _BATCH_PAYLOAD_CHARACTERS:
                yield batch
                batch, room, characters = [], _BATCH, 0
    except SettingError as cause:
        error = cause
        if isinstance(cause, BrokenInputError):
            error = SettingError(f"{cause} What was read before stays.")
    if batch:
        yield batch
    if error is not None:
        raise error


def _keys_by_shard(store: WorkStore) -> list[int]:
    return [sum(shard.counts.values()) for shard in store.shard_counts()]


def _report_shards(added: int, before: list[int], after: list[int]) -> None:
    if not added or len(after) == 1:
        return
    by_shard = [new - old for old, new in zip(before, after, strict=True)]
    sys.stdout.write(f"Added by shard: {spread(by_shard)}.\n")
    if sum(by_shard) != added:
        sys.stderr.write("Others stored keys at the same time; the numbers by shard count those.\n")


def _warnings(tally: Tally, noun: str) -> Iterator[str]:
    yield from tally.rejects.sentences(noun)
    advice = "mend the list and load it into a new store"
    yield from tally.schemeless.sentences(noun, advice)
