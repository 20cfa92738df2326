"""``hexdigest-shard owner``: which shard owns a key."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from scrapy_hexshard.cli.inputs import STDIN, Input, check_readable
from scrapy_hexshard.cli.key_lines import read_key_lines
from scrapy_hexshard.errors import InvalidKeyError
from scrapy_hexshard.keys import canonical_key, digest
from scrapy_hexshard.sharding import check_count, digest_owner


def add_parser(subparsers: Any) -> None:
    """Add the command to those of ``hexdigest-shard``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "owner",
        help="say which shard owns a key",
        description="Print the owning shard and the canonical form of each key, tab between.",
    )
    parser.add_argument(
        "keys", nargs="+", metavar="KEY", help="a URL or id; - reads lines of stdin, as load does"
    )
    parser.add_argument("--shards", type=int, required=True, metavar="N", help="number of shards")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the owners. Raises ShardError or, at the first invalid key, InvalidKeyError."""
    count = check_count(arguments.shards)
    for key in _keys(arguments.keys):
        sys.stdout.write(f"{digest_owner(digest(key), count)}\t{key}\n")
    return 0


def _keys(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        if word == STDIN:
            yield from _keys_of_stdin()
        else:
            yield canonical_key(word)


def _keys_of_stdin() -> Iterator[str]:
    check_readable(STDIN)
    with Input(STDIN) as source:
        for record in read_key_lines(source):
            if record.fault:
                raise InvalidKeyError(f"Line {record.number}: {record.fault}")
            yield str(record.work)
