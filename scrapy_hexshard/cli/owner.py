"""``hexdigest-shard owner``: which shard owns a key."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from typing import Any

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
        "keys", nargs="+", metavar="KEY", help="a URL or id; - reads lines of stdin"
    )
    parser.add_argument("--shards", type=int, required=True, metavar="N", help="number of shards")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the owners. Raises ShardError or, at the first invalid key, InvalidKeyError."""
    count = check_count(arguments.shards)
    for key in map(canonical_key, _keys(arguments.keys)):
        sys.stdout.write(f"{digest_owner(digest(key), count)}\t{key}\n")
    return 0


def _keys(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        if word == "-":
            yield from filter(str.strip, sys.stdin)
        else:
            yield word
