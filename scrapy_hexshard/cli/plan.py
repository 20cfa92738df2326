"""``hexdigest-shard plan``: how lists would fall to shards and hosts. It stores nothing."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from scrapy_hexshard.cli.listing import Listing, add_listing_arguments
from scrapy_hexshard.cli.progress import progress_bar
from scrapy_hexshard.cli.rejects import Rejects
from scrapy_hexshard.cli.schemeless import Schemeless
from scrapy_hexshard.cli.shares import spread
from scrapy_hexshard.keys import digest
from scrapy_hexshard.sharding import check_count, digest_owner

SCHEMA = 1
IDS = "(ids)"
MAX_KEYS = 500_000  # repeats are counted among so many different keys, in some 50 MB
MAX_HOSTS = 100_000
_HOSTS_SHOWN = 20
_SHARDS_SHOWN = 64
_STEP = 5_000


class Forecast:
    """Rows by shard and by host and, while they are few enough, the different keys among them."""

    def __init__(self, shards: int, max_keys: int = MAX_KEYS, max_hosts: int = MAX_HOSTS) -> None:
        self.rows = [0] * shards
        self.keys: list[int] | None = [0] * shards  # None: too many to tell
        self.hosts: Counter[str] = Counter()
        self.uncounted = 0  # rows of hosts beyond those that are counted
        self._seen: set[bytes] = set()
        self._max_keys, self._max_hosts = max_keys, max_hosts

    def add(self, key: str) -> None:
        """Count a row with this canonical key."""
        key_digest = digest(key)
        shard = digest_owner(key_digest, len(self.rows))
        self.rows[shard] += 1
        if self.keys is not None:
            self._add_key(key_digest[:16], shard, self.keys)
        host = host_of(key)
        if host in self.hosts or len(self.hosts) < self._max_hosts:
            self.hosts[host] += 1
        else:
            self.uncounted += 1

    def _add_key(self, key_digest: bytes, shard: int, keys: list[int]) -> None:
        if key_digest in self._seen:
            return
        if len(self._seen) >= self._max_keys:
            self.keys = None
            self._seen.clear()
            return
        self._seen.add(key_digest)
        keys[shard] += 1

    @property
    def top_hosts(self) -> list[tuple[str, int]]:
        """The hosts with the most rows, most first."""
        return sorted(self.hosts.items(), key=lambda host: (-host[1], host[0]))[:_HOSTS_SHOWN]

    @property
    def other_rows(self) -> int:
        """The rows of all other hosts."""
        return sum(self.rows) - sum(rows for _, rows in self.top_hosts)


def host_of(key: str) -> str:
    """The host of a canonical key, without its port; IDS for one that has none."""
    if "://" not in key:
        return IDS
    # The key of a request that is no plain GET has a URL in its middle.
    url = key.split(" ")[1] if " " in key else key
    return urlsplit(url).hostname or IDS


def add_parser(subparsers: Any) -> None:
    """Add the command to those of ``hexdigest-shard``."""
    parser: ArgumentParser = subparsers.add_parser(
        "plan",
        help="show how lists would fall to the shards",
        description="Count the rows of lists by shard and by host, as load would read them.\n"
        "Nothing is stored.",
        epilog="example:\n  hexdigest-shard plan urls.txt --shards 4",
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--shards", type=int, required=True, metavar="N", help="number of shards")
    add_listing_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=run)


def run(arguments: Namespace) -> int:
    """Print the forecast. Raises SettingError or ShardError."""
    forecast, rejects = Forecast(check_count(arguments.shards)), Rejects()
    listing, schemeless = Listing(arguments), Schemeless()
    _read(listing, forecast, rejects, schemeless)
    if arguments.json:
        sys.stdout.write(json.dumps(document(forecast, rejects)) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in _lines(forecast, rejects))
    advice = "mend the list before you load it"
    warnings = (
        *rejects.sentences(listing.noun),
        *schemeless.sentences(listing.noun, advice),
    )
    sys.stderr.writelines(f"{line}\n" for line in warnings)
    return 0


def document(forecast: Forecast, rejects: Rejects) -> dict[str, Any]:
    """The forecast as ``plan --json`` prints it."""
    keys: list[int] | list[None] = forecast.keys or [None] * len(forecast.rows)
    shards = enumerate(zip(forecast.rows, keys, strict=True))
    return {
        "rows": sum(forecast.rows),
        "keys": sum(forecast.keys) if forecast.keys else None,
        "invalid": rejects.count,
        "shards": [{"shard": shard, "rows": rows, "keys": keys} for shard, (rows, keys) in shards],
        "hosts": [{"host": host, "rows": rows} for host, rows in forecast.top_hosts],
        "other_rows": forecast.other_rows,
        "schema": SCHEMA,
    }


def _read(listing: Listing, forecast: Forecast, rejects: Rejects, schemeless: Schemeless) -> None:
    count = 0
    with progress_bar(listing, lambda: f"Reading: {count:,} rows", lambda: count) as advance:
        for count, record in enumerate(listing, 1):
            if record.work is None:
                rejects.add(listing.name, record.number, record.fault)
            else:
                work = record.work
                key = work if isinstance(work, str) else work.key
                forecast.add(key)
                schemeless.look(key, listing.name, record.number)
            if count % _STEP == 0:
                advance()


def _lines(forecast: Forecast, rejects: Rejects) -> Iterator[str]:
    yield f"{sum(forecast.rows):,} rows, {rejects.count:,} invalid; {_repeats(forecast)}"
    yield ""
    yield from _shard_lines(forecast)
    yield ""
    yield from _host_lines(forecast)


def _repeats(forecast: Forecast) -> str:
    if forecast.keys is None:
        return f"repeats are not told apart above {MAX_KEYS:,} keys."
    repeats = sum(forecast.rows) - sum(forecast.keys)
    return f"{sum(forecast.keys):,} different keys, {repeats:,} repeats."


def _shard_lines(forecast: Forecast) -> Iterator[str]:
    columns = [forecast.rows] if forecast.keys is None else [forecast.rows, forecast.keys]
    yield "shard" + "".join(f"{title:>13}" for title in ("rows", "keys")[: len(columns)])
    for shard, counts in enumerate(zip(*columns, strict=True)):
        if shard < _SHARDS_SHOWN:
            yield f"{shard:>5}" + "".join(f"{count:>13,}" for count in counts)
    if len(forecast.rows) > _SHARDS_SHOWN:
        yield f"... and {len(forecast.rows) - _SHARDS_SHOWN:,} more shards, see --json."
        yield f"Rows {spread(forecast.rows)}."


def _host_lines(forecast: Forecast) -> Iterator[str]:
    yield f"{'rows':>18}  host"
    yield from (f"{rows:>18,}  {host}" for host, rows in forecast.top_hosts)
    if forecast.other_rows:
        others = max(0, len(forecast.hosts) - _HOSTS_SHOWN)
        more = "at least " if forecast.uncounted else ""
        yield f"{forecast.other_rows:>18,}  ({more}{others:,} other hosts)"
