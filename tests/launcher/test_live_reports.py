"""What workers report for the live view: keys at work, and the keys of their shard."""

from __future__ import annotations

import json

import pytest

from scrapy_hexshard.launcher.console import Console
from scrapy_hexshard.launcher.logs import ShardOutput
from scrapy_hexshard.launcher.plan import ProcessSpec
from scrapy_hexshard.launcher.reports import Extent, Reports, Totals
from scrapy_hexshard.launcher.restarts import Restarts
from scrapy_hexshard.launcher.worker import Worker
from scrapy_hexshard.redaction import Redactor


def lines(*reports: dict[str, object]) -> bytes:
    return b"".join(json.dumps(report).encode() + b"\n" for report in reports)


def told(**facts: object) -> Reports:
    reports = Reports()
    reports.feed(lines({"event": "opened"}, {"event": "progress", **facts}))
    return reports


def test_a_worker_that_does_not_tell_its_keys_is_understood():
    reports = told(done=3, running=8)
    assert (reports.extent, reports.running, reports.unreadable) == (None, 8, 0)


@pytest.mark.parametrize(
    "facts",
    [
        *[{"keys": 9}, {"open": 9}, {"keys": 3, "open": 4}, {"keys": 3, "open": -1}],
        *[{"keys": "9", "open": 3}, {"keys": 9, "open": None}],
    ],
)
def test_a_number_of_keys_that_cannot_be_is_none(facts):
    assert told(**facts).extent is None


def test_the_last_number_of_keys_stands_until_there_is_another():
    reports = told(keys=900, open=400)
    reports.feed(lines({"event": "progress", "done": 1}))
    assert reports.extent == Extent(900, 400)
    reports.feed(lines({"event": "progress", "keys": 1_000, "open": 0}))
    assert reports.extent == Extent(1_000, 0)


def test_nothing_is_running_once_the_spider_has_closed():
    reports = told(running=8)
    reports.feed(lines({"event": "closed", "reason": "finished", "running": 8}))
    assert reports.running == 0


@pytest.fixture
def worker() -> Worker:
    spec = ProcessSpec(3, ("true",), {"CRAWL_SHARDS": "4"}, frozenset())
    output = ShardOutput(3, Redactor(()), Console(-1, -1))
    return Worker(spec, output, Restarts(0, 1.0), 1.0)


def feed(worker: Worker, *reports: dict[str, object]) -> None:
    worker._reports.feed(lines({"event": "opened"}, *reports))


@pytest.mark.parametrize(("reason", "left"), [("finished", 0), ("store_error", 40)])
def test_of_a_finished_shard_nothing_is_open(worker, reason, left):
    feed(
        worker,
        {"event": "progress", "keys": 90, "open": 40, "running": 8, "done": 50},
        {"event": "closed", "reason": reason, "done": 50},
    )
    worker.bury(1.0)
    assert worker.extent == Extent(90, left)
    assert (worker.running, worker.opened, worker.alive) == (0, False, False)


def test_what_a_life_told_is_known_to_the_next_one_until_it_tells_more(worker):
    feed(worker, {"event": "progress", "keys": 90, "open": 40, "running": 8})
    worker.bury(1.0)
    assert (worker.extent, worker.running) == (Extent(90, 40), 0)
    feed(worker, {"event": "progress", "done": 1})
    assert worker.extent == Extent(90, 40)
    feed(worker, {"event": "progress", "keys": 95, "open": 30})
    assert worker.extent == Extent(95, 30)


COUNTS = ("done", "failed", "dead", "faults", "released", "items", "running", "pages")


@pytest.mark.parametrize("value", ["hushhush", "7", True, -1, 1.5, None, [1], {"a": 1}])
@pytest.mark.parametrize("name", ["shard", *COUNTS])
def test_a_report_with_a_number_that_is_none_is_unreadable(name, value):
    reports = Reports()
    for event in ("opened", "progress", "closed"):
        reports.feed(lines({"event": event, "reason": "finished", name: value}))
    assert reports.unreadable == 3
    assert (reports.totals, reports.shard, reports.reason) == (Totals(), None, None)
    assert not reports.heard


def test_a_shard_that_no_crawl_can_have_is_none():
    reports = Reports()
    reports.feed(lines({"event": "opened", "shard": 98_765_432}))
    assert (reports.shard, reports.unreadable) == (None, 1)


@pytest.mark.parametrize("keys", [True, 1.5])
def test_a_number_of_keys_is_whole(keys):
    assert told(keys=keys, open=0).extent is None
