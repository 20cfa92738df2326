"""``hexdigest-shard status``: how far a crawl is, read from its store without changing it."""

from __future__ import annotations

import json
import math
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable, Mapping
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_hexshard.cli.watch import repeat, watch
from scrapy_hexshard.store import open_store
from scrapy_hexshard.store.contract import ShardCounts, State

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SCHEMA = 1
WATCH_SECONDS = 2.0
_OUTCOMES_SHOWN = 20
_ROOMY_WIDTH = 80
_UNBOUNDED_WIDTH = 1_000


class Snapshot(NamedTuple):
    """The keys of a crawl by shard and state, and those that ended by outcome, most first."""

    shards: list[ShardCounts]
    outcomes: dict[str, int]

    @property
    def is_open(self) -> bool:
        """Whether any key is neither done nor dead."""
        total = self.total
        return sum(total.values()) > total[State.DONE] + total[State.DEAD]

    @property
    def total(self) -> dict[State, int]:
        return {state: sum(shard.counts.get(state, 0) for shard in self.shards) for state in State}


def add_parser(subparsers: Any) -> None:
    """Add the command to those of ``hexdigest-shard``."""
    parser: ArgumentParser = subparsers.add_parser(
        "status",
        help="show how far a crawl is",
        description="Show the keys of each shard by state, and how those that ended did.\n"
        "The store is only read; workers go on undisturbed.",
        usage="hexdigest-shard status STORE [--json] [--watch [SECONDS]]",
        epilog="example:\n  hexdigest-shard status crawl.sqlite3",
        formatter_class=RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("store", metavar="STORE", nargs="?", help="path of the store")
    add("--json", action="store_true", help="print one JSON document")
    add(
        "--watch",
        nargs="?",
        const=f"{WATCH_SECONDS:g}",
        metavar="SECONDS",
        help="show it again every SECONDS (%(const)s) until no key is open; Ctrl-C ends it",
    )
    parser.set_defaults(run=run, usage_error=parser.error)


def run(arguments: Namespace) -> int:
    """Print the tables or the document. Raises StoreError if the store cannot be read."""
    url, seconds = _what(arguments)
    if arguments.json:
        repeat(lambda: _print_document(url) and seconds is not None, seconds or 0.0)
        return 0
    if seconds is not None:
        watch(lambda: _read_counts(url), seconds)
    _draw(_read(url), url)
    return 0


def _what(arguments: Namespace) -> tuple[str, float | None]:
    """The store, and how often to show it. In ``--watch STORE`` argparse takes it for SECONDS."""
    words = [word for word in (arguments.watch, arguments.store) if word is not None]
    seconds = None
    if arguments.watch is not None:
        seconds = _seconds(words[0])
        if seconds is not None:
            del words[0]
        elif arguments.store is None:
            seconds = WATCH_SECONDS
    if not words:
        arguments.usage_error("the following arguments are required: STORE")
    if len(words) > 1:
        arguments.usage_error(f"argument --watch: {words[0]!r} is not a number of seconds above 0")
    return words[0], seconds


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 < seconds < math.inf else None


def _print_document(url: str) -> bool:
    """Print the store's document; whether keys are open."""
    snapshot = _read(url)
    sys.stdout.write(json.dumps(document(snapshot)) + "\n")
    sys.stdout.flush()
    return snapshot.is_open


def document(snapshot: Snapshot) -> dict[str, Any]:
    """The snapshot as ``status --json`` prints it."""
    return {
        "total": _by_state(snapshot.total),
        "shards": [{"shard": row.shard, **_by_state(row.counts)} for row in snapshot.shards],
        "outcomes": snapshot.outcomes,
        "schema": SCHEMA,
    }


def _read(url: str) -> Snapshot:
    with open_store(url, readonly=True) as store:
        outcomes = store.outcomes()
        return Snapshot(store.shard_counts(), dict(sorted(outcomes.items(), key=_most_first)))


def _read_counts(url: str) -> list[ShardCounts]:
    with open_store(url, readonly=True) as store:
        return store.shard_counts()


def _most_first(outcome: tuple[str, int]) -> tuple[int, str]:
    return -outcome[1], outcome[0]


def _by_state(counts: Mapping[State, int]) -> dict[str, int]:
    return {state.value: counts.get(state, 0) for state in State}


def _draw(snapshot: Snapshot, name: str) -> None:
    from rich.console import Console  # noqa: PLC0415

    console = Console(markup=False, highlight=False, emoji=False)
    if console.is_terminal and console.width >= _ROOMY_WIDTH:
        _print(snapshot, name, console, roomy=True)
        return
    # No digit may be cut or wrapped on a pipe; a narrow terminal breaks lines by itself.
    text = StringIO()
    plain = Console(file=text, width=_UNBOUNDED_WIDTH, markup=False, highlight=False, emoji=False)
    _print(snapshot, name, plain, roomy=False)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def _print(snapshot: Snapshot, name: str, console: Console, *, roomy: bool) -> None:
    console.print(_headline(snapshot, name), soft_wrap=True)
    console.print(_shard_table(snapshot, roomy))
    if snapshot.outcomes:
        if not roomy:
            console.print()
        console.print(_outcome_table(snapshot.outcomes, roomy))


def _headline(snapshot: Snapshot, name: str) -> str:
    total = snapshot.total
    keys, ended = sum(total.values()), total[State.DONE] + total[State.DEAD]
    share = f", {100 * ended / keys:.1f} % ended" if keys else ""
    extent = _many(keys, "key") if keys else "no keys yet"
    return f"{_printable(name)}: {extent} on {_many(len(snapshot.shards), 'shard')}{share}"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _shard_table(snapshot: Snapshot, roomy: bool) -> Table:
    table = _table(roomy)
    table.add_column("shard", no_wrap=True)
    for state in State:
        table.add_column(state.value, justify="right", no_wrap=True)
    for row in snapshot.shards:
        table.add_row(str(row.shard), *_numbers(row.counts))
    table.add_section()
    table.add_row("total", *_numbers(snapshot.total), style="bold")
    return table


def _numbers(counts: Mapping[State, int]) -> Iterable[str]:
    return (f"{count:,}" for count in _by_state(counts).values())


def _outcome_table(outcomes: Mapping[str, int], roomy: bool) -> Table:
    table = _table(roomy)
    table.add_column("keys", justify="right", no_wrap=True)
    table.add_column("outcome", overflow="fold")
    for outcome, count in list(outcomes.items())[:_OUTCOMES_SHOWN]:
        table.add_row(f"{count:,}", _printable(outcome))
    if rest := list(outcomes.values())[_OUTCOMES_SHOWN:]:
        table.add_row(f"{sum(rest):,}", f"{_many(len(rest), 'other outcome')}, see --json")
    return table


def _printable(text: str) -> str:
    # Both an outcome and a path may hold anything, terminal sequences too.
    return "".join(char if char.isprintable() else " " for char in text)


def _table(roomy: bool) -> Table:
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    return Table(box=box.SIMPLE_HEAD if roomy else None, pad_edge=False)
