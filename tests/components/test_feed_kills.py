"""Workers that feed a file and are killed, or stopped: what is done is in the file."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from support.processes import CAN_BE_REACTORLESS, LOOPS, SETTINGS, Project

KILLS = 3
KEYS = 200

PAGES = """
class Pages(scrapy.Spider):
    name = "pages"

    def parse(self, response):
        yield {"url": response.url, "part": 0}
        yield {"url": response.url, "part": 1}
"""

SLOW = """
from pathlib import Path

class Slow(scrapy.Spider):
    name = "pages"

    def parse(self, response):
        yield {"url": response.url}
        for n in range(20):
            yield Request(f"{ORIGIN}/slow?t=0.5&{n}&{response.url[-1]}", callback=self.leaf)

    def leaf(self, response):
        with Path("began").open("a") as file:
            file.write("1")
"""


@pytest.fixture(autouse=True)
def _skip_what_this_scrapy_cannot_do(request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["loop"] == "reactorless" and not CAN_BE_REACTORLESS:
        pytest.skip("this Scrapy cannot download without a reactor here")


def written(folder: Path) -> list[Any]:
    """The items in all feed files, which have no torn line."""
    return [
        json.loads(line)
        for path in folder.glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]


def done(project: Project) -> set[str]:
    return {key for (key,) in project.rows("SELECT key FROM done JOIN keys USING (id)")}


def lost(project: Project) -> set[tuple[str, int]]:
    """Items of keys that are done, and not in the feed."""
    there = {(item["url"], item["part"]) for item in written(project.folder)}
    return {(key, part) for key in done(project) for part in range(2)} - there


CASES = {
    "unit": ([], "items.jsonl"),
    "batches": (["-s", "FEED_EXPORT_BATCH_ITEM_COUNT=7"], "%(batch_time)s.jsonl"),
    "feed": (
        ["-s", "FEED_EXPORT_BATCH_ITEM_COUNT=7", "-s", "HEXSHARD_COMPLETE_AFTER=feed"],
        "%(batch_time)s.jsonl",
    ),
}


@pytest.mark.parametrize(
    ("loop", "case"), [("asyncio", "unit"), ("default", "batches"), ("reactorless", "feed")]
)
def test_what_is_done_is_in_the_feed_however_often_the_worker_is_killed(project, loop, case):
    options, uri = CASES[case]
    project.write(PAGES, SETTINGS + "HEXSHARD_ITEMS = False\nDOWNLOAD_DELAY = 0.005\n")
    project.load(*(f"{project.origin}/ok?{number}" for number in range(KEYS)))
    command = ["crawl", "pages", "-o", uri, *options, *LOOPS[loop]]
    for kill in range(1, KILLS + 1):
        process = project.start(*command)
        target = kill * KEYS // (KILLS + 2)
        project.until(lambda: len(done(project)) >= target or process.poll() is not None)  # noqa: B023
        assert process.poll() is None, project.read("err.txt")[-3000:]
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert len(done(project)) >= target
        assert lost(project) == set()
    ended = project.run(*command)
    assert project.counts == {"done": KEYS}, ended.err[-2000:]
    assert lost(project) == set()
    # At least once: a kill repeats what was not complete, and little more.
    repeated = len(written(project.folder)) - 2 * KEYS
    assert 0 <= repeated <= KILLS * 200


@pytest.mark.parametrize(
    ("loop", "twice"), [*((loop, False) for loop in LOOPS), ("asyncio", True), ("default", True)]
)
def test_a_worker_that_is_stopped_completes_what_its_feed_has_and_gives_the_rest_back(
    project, loop, twice
):
    project.write(SLOW, SETTINGS + "HEXSHARD_ITEMS = False\nHEXSHARD_COMPLETE_AFTER = 'feed'\n")
    project.load(*(f"{project.origin}/ok?{number}" for number in range(40)))
    options = ["-s", "HEXSHARD_MAX_UNITS=2"]
    process = project.start("crawl", "pages", "-o", "items.jsonl", *options, *LOOPS[loop])
    project.until(lambda: len(project.read("began")) > 60)
    process.send_signal(signal.SIGTERM)
    if twice:
        project.until(lambda: "shutting down gracefully" in project.read("err.txt"))
        process.send_signal(signal.SIGTERM)
    ended = project.wait(process)
    assert "running" not in project.counts
    assert project.blame == [(0, 0, 0)]
    assert project.counts["pending"] > 0
    there = [item["url"] for item in written(project.folder)]
    assert len(there) == len(set(there))
    assert done(project) <= set(there)
    if not twice:
        assert project.counts["done"] >= 2
        assert "Traceback" not in ended.err
        assert project.reasons == ["shutdown"]
