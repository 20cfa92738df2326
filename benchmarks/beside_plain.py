"""The store beside the plain one: batches in one and four processes, and a crowd on one file."""

from __future__ import annotations

import inspect
import os
import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path

import plain_store
from machine import load, scratch
from report import Figure, Section, number, ratios, table
from scale import Scale
from workers import Opener, Outcome, drain, fill, ours, plain, plain_in_no_order, product_urls, rate

Kind = Callable[[Path, int, int], Opener]
OURS, PLAIN, NO_ORDER = "this store", "plain store", "plain store, in no order"
KINDS: dict[str, Kind] = {OURS: ours, PLAIN: plain, NO_ORDER: plain_in_no_order}
GOALS = {1: 100.0, 4: 40.0}


def batches(folder: Path, scale: Scale) -> Section:
    """Rates of claim(100) with complete(100), and their ratios."""
    found: dict[tuple[int, str], list[float]] = {(n, kind): [] for n in GOALS for kind in KINDS}
    with scratch(folder) as place:
        for processes in GOALS:
            make_templates(place, scale.keys * processes, processes)
        for round_ in range(scale.rounds):
            for processes in GOALS:
                for kind in turn(list(KINDS), round_):
                    outcomes = measure(place, kind, processes, scale)
                    found[processes, kind].append(rate(outcomes))
    title = f"A commit for {scale.batch} keys, beside a plain store that commits each"
    section = Section("plain", title, _about(scale))
    for processes, goal in GOALS.items():
        name = "1 process" if processes == 1 else f"{processes} processes, one file"
        rates = {kind: tuple(found[processes, kind]) for kind in KINDS}
        section.figures += [Figure(f"{name}: {k}", each, "keys/s") for k, each in rates.items()]
        section.figures += [
            Figure(f"{name}: ratio", ratios(rates[OURS], rates[PLAIN]), "x", at_least=goal),
            Figure(f"{name}: ratio to no order", ratios(rates[OURS], rates[NO_ORDER]), "x"),
        ]
    section.tables.append(_code())
    return section


def crowd(folder: Path, scale: Scale) -> Section:
    """What each of many processes on one file gets done, and how long a claim may take."""
    found: dict[str, list[list[Outcome]]] = {OURS: [], PLAIN: []}
    rounds = scale.rounds // 2 + 1
    with scratch(folder) as place:
        make_templates(place, scale.crowd_keys * scale.crowd, scale.crowd)
        for round_ in range(rounds):
            for kind in turn(list(found), round_):
                outcomes = measure(place, kind, scale.crowd, scale)
                if any(outcome.ran_out for outcome in outcomes):
                    raise SystemExit("A process ran out of keys: raise crowd_keys in scale.py.")
                found[kind].append(outcomes)
    mine = found[OURS]
    section = Section(
        "crowd",
        f"{scale.crowd} processes on one file",
        f"Each claims and completes {scale.batch} keys of its own shard at a time, for "
        f"{scale.seconds:g} seconds a round, in {rounds} rounds, at synchronous=FULL. "
        f"Load average at the end: {load()}.",
        [
            Figure("keys of the slowest / of the fastest", _fairness(mine), at_least=0.3),
            Figure("errors in all", (sum(map(_errors, mine)),), at_most=0),
            Figure("slowest claim of a round", _worst(mine), "s", at_most=1),
            Figure("all together", tuple(map(rate, mine)), "keys/s"),
        ],
    )
    theirs = found[PLAIN]
    row = [number(min(_fairness(theirs))), str(sum(map(_errors, theirs)))]
    row += [number(max(_worst(theirs))), number(min(map(rate, theirs)))]
    heads = ["plain store, worst round", "errors in all", "slowest claim, s", "keys/s"]
    section.tables.append(table(heads, [row]))
    return section


def make_templates(place: Path, keys: int, shards: int) -> None:
    """A filled store of this and of the plain kind, to be copied for each measurement."""
    for kind in (OURS, PLAIN):
        fill(KINDS[kind](_template(place, kind, shards), 0, shards)(), product_urls(keys))


def measure(place: Path, kind: str, processes: int, scale: Scale) -> list[Outcome]:
    """The outcome of *processes* on a fresh copy."""
    path = place / "run.db"
    shutil.copyfile(_template(place, kind, processes), path)
    os.sync()
    openers = [KINDS[kind](path, shard, processes) for shard in range(processes)]
    outcomes = drain(openers, limit=scale.batch, seconds=scale.seconds)
    for file in place.glob("run.db*"):
        file.unlink()
    return outcomes


def turn(kinds: list[str], round_: int) -> list[str]:
    """Another one comes first in each round."""
    first = round_ % len(kinds)
    return kinds[first:] + kinds[:first]


def _template(place: Path, kind: str, shards: int) -> Path:
    return place / f"{'this' if kind == OURS else 'plain'}-{shards}.db"


def _fairness(rounds: list[list[Outcome]]) -> tuple[float, ...]:
    keys = [[outcome.keys for outcome in outcomes] for outcomes in rounds]
    return tuple(min(each) / max(each) for each in keys)


def _worst(rounds: list[list[Outcome]]) -> tuple[float, ...]:
    return tuple(max(outcome.worst_claim for outcome in outcomes) for outcomes in rounds)


def _errors(outcomes: list[Outcome]) -> int:
    return sum(len(outcome.errors) for outcome in outcomes)


def _about(scale: Scale) -> str:
    return (
        f"claim({scale.batch}) and then complete() of these {scale.batch}, over and over, at "
        f"synchronous=FULL. Both stores hold the same {scale.keys:,} keys for each process, "
        f"fresh in each round. {scale.rounds} rounds of {scale.seconds:g} seconds each, or until "
        f"none is left, the kinds in turn; a ratio is that of one round. Load average at the end: "
        f"{load()}."
    )


def _code() -> str:
    store = plain_store.PlainStore
    parts = [
        *(f"PRAGMA {pragma};".format(synchronous="FULL") for pragma in plain_store.PRAGMAS),
        plain_store.SCHEMA.strip(),
        f"{plain_store.CLAIM.strip()};",
        f"{plain_store.COMPLETE};",
    ]
    methods = [
        textwrap.dedent(inspect.getsource(each))
        for each in (store._connection, store.claim, store.complete)  # noqa: SLF001
    ]
    return (
        "The plain store is [benchmarks/plain_store.py](../benchmarks/plain_store.py): a careful "
        "version of the obvious, with a connection for each call and a transaction for each key "
        "that is done. In order, it sorts the pending keys of the shard at each claim, so the "
        "ratio grows with their number; without its ORDER BY it does less than this store, which "
        "keeps first in, first out.\n\n"
        f"```sql\n{chr(10).join(parts)}\n```\n\n```python\n{chr(10).join(methods)}```"
    )
