"""Real Scrapy processes and real signals: how a worker starts, is stopped, and is refused."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from support.processes import CAN_BE_REACTORLESS, LOOPS, SETTINGS, Project

from scrapy_hexshard import ShardSpec, SQLiteWorkStore
from scrapy_hexshard.pipes import LIFELINE_VARIABLE, STATUS_VARIABLE, describe_descriptor

PAGES = """
class Pages(scrapy.Spider):
    name = "pages"

    def parse(self, response):
        yield {"url": response.url}
"""

# Its callbacks say that they have begun, and take their time.
SLOW = """
import asyncio
from pathlib import Path

class Pages(scrapy.Spider):
    name = "pages"

    def parse(self, response):
        with Path("began").open("a") as file:
            file.write("1")
        for n in range(20):
            yield Request(f"{ORIGIN}/slow?t=0.5&{n}&{response.url[-1]}", callback=self.leaf)

    def leaf(self, response):
        yield {"n": 1}
"""


@pytest.fixture(autouse=True)
def _skip_what_this_scrapy_cannot_do(request: pytest.FixtureRequest) -> None:
    callspec = getattr(request.node, "callspec", None)
    if callspec and callspec.params.get("loop") == "reactorless" and not CAN_BE_REACTORLESS:
        pytest.skip("this Scrapy cannot download without a reactor here")


loops = pytest.mark.parametrize("loop", LOOPS)


def count_keys(project: Project, path: str = "/ok", count: int = 3) -> list[str]:
    return [f"{project.origin}{path}?{n}" for n in range(count)]


# Stopping.


@loops
def test_one_sigterm_gives_everything_back_and_blames_no_key(project, loop):
    project.write(SLOW)
    project.load(*count_keys(project, count=40))
    process = project.start("crawl", "pages", *LOOPS[loop])
    project.until(lambda: project.read("began"))
    process.send_signal(signal.SIGTERM)
    ended = project.wait(process)
    assert "running" not in project.counts
    assert project.counts["pending"] > 0
    assert project.blame == [(0, 0, 0)]
    assert project.reasons == ["shutdown"]
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("loop", "path"), [*((loop, "/hang") for loop in LOOPS), ("asyncio", "/ok")]
)
def test_a_second_sigterm_gives_everything_back_at_once_and_blames_no_key(project, loop, path):
    project.write(SLOW)
    project.load(*count_keys(project, path, 8))
    process = project.start("crawl", "pages", *LOOPS[loop])
    if path == "/hang":
        project.until(lambda: project.store.exists() and project.counts.get("running", 0) >= 8)
    else:
        project.until(lambda: project.read("began"))
    process.send_signal(signal.SIGTERM)
    project.until(lambda: "shutting down gracefully" in project.read("err.txt"))
    process.send_signal(signal.SIGTERM)
    project.wait(process)
    assert "running" not in project.counts
    assert set(project.counts) <= {"pending", "done"}
    assert project.counts["pending"] > 0
    assert project.blame == [(0, 0, 0)]
    assert project.items == [{"n": 1}] * len(project.items)


@pytest.mark.parametrize("twice", [False, True], ids=["stopped", "forced"])
def test_a_claim_in_flight_when_the_worker_is_stopped_is_given_back(project, twice):
    project.write(
        PAGES
        + """
import time
from pathlib import Path
from scrapy_hexshard import SQLiteWorkStore

claim = SQLiteWorkStore.claim

def slow_claim(self, limit, lease_seconds):
    Path("claiming").touch()
    time.sleep(1.5)
    claims = claim(self, limit, lease_seconds)
    assert len(claims) == 3
    return claims

SQLiteWorkStore.claim = slow_claim
"""
    )
    project.load(*count_keys(project))
    process = project.start("crawl", "pages")
    project.until((project.folder / "claiming").exists)
    process.send_signal(signal.SIGTERM)
    if twice:
        project.until(lambda: "shutting down gracefully" in project.read("err.txt"))
        process.send_signal(signal.SIGTERM)
    project.wait(process)
    assert project.counts == {"pending": 3}
    assert project.blame == [(0, 0, 0)]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("CLOSESPIDER_PAGECOUNT", "2", "closespider_pagecount"),
        ("CLOSESPIDER_ITEMCOUNT", "2", "closespider_itemcount"),
        ("CLOSESPIDER_TIMEOUT", "2", "closespider_timeout"),
    ],
)
def test_a_close_condition_of_scrapy_gives_everything_back(project, name, value, reason):
    project.write(PAGES)
    project.load(*(f"{project.origin}/slow?t=0.3&{n}" for n in range(60)))
    settings = ["-s", f"{name}={value}", "-s", "CONCURRENT_REQUESTS=2"]
    project.run("crawl", "pages", *settings)
    assert set(project.counts) == {"pending", "done"}
    assert project.counts["done"] == len(project.items)
    assert project.blame == [(0, 0, 0)]
    assert project.reasons == [reason]


# Refusals.


def sentences(err: str) -> list[str]:
    """What is logged as an error or worse."""
    return [line for line in err.splitlines() if " ERROR: " in line or " CRITICAL: " in line]


REFUSALS = {
    "shard": (["-a", "shard=4/4"], "Shard 4 does not exist"),
    "half a shard": (["-a", "shard=1"], "A shard index was given without the count"),
    "setting": (["-s", "HEXSHARD_LEASE_SECONDS=x"], "HEXSHARD_LEASE_SECONDS is a number"),
    "misspelt": (["-s", "HEXSHARD_LEASE=60"], "There is no setting HEXSHARD_LEASE"),
    "items without a store": (["-s", "HEXSHARD_STORE="], "HEXSHARD_STORE is not set"),
    "JOBDIR": (["-s", "JOBDIR=job"], "JOBDIR and HEXSHARD_STORE both resume a crawl"),
}


@pytest.mark.parametrize(
    ("loop", "case"),
    [*(("asyncio", case) for case in REFUSALS), ("default", "shard"), ("reactorless", "JOBDIR")],
)
def test_what_is_refused_at_start_is_said_in_one_sentence(project, loop, case):
    options, sentence = REFUSALS[case]
    project.write(PAGES)
    ended = project.run("crawl", "pages", *options, *LOOPS[loop])
    assert ended.code == 1
    [said] = sentences(ended.err)
    assert sentence in said
    assert "[scrapy_hexshard." in said
    assert "Traceback" not in ended.err + ended.out
    assert "Unhandled error" not in ended.err + ended.out
    assert not project.store.exists()


def test_an_unsupported_scrapy_is_refused_in_one_sentence(project):
    project.write(
        PAGES + "\nfrom scrapy.core.scraper import Scraper\ndel Scraper.call_spider_async\n"
    )
    ended = project.run("crawl", "pages")
    assert ended.code == 1
    [said] = sentences(ended.err)
    assert "has no Scraper.call_spider_async(result, request)" in said
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("loop", ["asyncio", "default"])
def test_the_errors_of_others_keep_their_traceback(project, loop):
    project.write(
        PAGES
        + """
class Broken:
    def __init__(self):
        raise RuntimeError("not ours")
""",
        SETTINGS + 'EXTENSIONS = {"spiders.Broken": 1}\n',
    )
    ended = project.run("crawl", "pages", *LOOPS[loop])
    assert ended.code == 1
    assert "Traceback" in ended.err
    assert "RuntimeError: not ours" in ended.err
    if loop == "default":
        assert "CRITICAL: Unhandled error in Deferred:" in ended.err


STARTS = """
class Pages(scrapy.Spider):
    name = "pages"
    start_urls = [f"{ORIGIN}/ok?1"]

    def parse(self, response):
        yield {"url": response.url}

class Others(Pages):
    name = "others"
"""


def refused_by_the_store(project: Project, sentence: str, *options: str) -> None:
    ended = project.run("crawl", "others", *options)
    [said] = sentences(ended.err)
    assert sentence in said
    assert "Traceback" not in ended.err
    assert "'finish_reason': 'store_error'" in ended.err


@pytest.mark.parametrize("spiders", [STARTS, STARTS.replace("start_urls", "urls")])
def test_the_store_of_another_spider_is_refused_in_one_sentence(project, spiders):
    project.write(spiders)
    project.run("crawl", "pages")
    refused_by_the_store(project, "belongs to the spider 'pages', not 'others'")
    assert project.counts in ({"done": 1}, {})


def test_a_store_with_another_shard_count_is_refused_in_one_sentence(project):
    project.write(STARTS)
    project.load(f"{project.origin}/ok?1", shards=2)
    refused_by_the_store(project, "2 shards", "-a", "shard=0/4")
    assert project.counts == {"pending": 1}


def test_a_store_in_a_missing_folder_is_refused_in_one_sentence(project):
    project.write(STARTS, SETTINGS.replace("crawl.sqlite3", "missing/crawl.sqlite3"))
    refused_by_the_store(project, "of the store does not exist")


# Spiders.


def test_a_spider_with_a_strict_init_takes_its_shard_from_the_settings(project):
    project.write(
        """
class Pages(scrapy.Spider):
    name = "pages"

    def __init__(self):
        super().__init__()

    def parse(self, response):
        yield {"url": response.url}
"""
    )
    keys = count_keys(project, count=12)
    project.load(*keys, shards=2)
    for index in range(2):
        shard = ["-s", f"HEXSHARD_SHARD={index}", "-s", "HEXSHARD_SHARDS=2"]
        ended = project.run("crawl", "pages", *shard)
        assert f"Shard {index} of 2, from the settings." in ended.err
    assert project.counts == {"done": 12}
    assert sorted(item["url"] for item in project.items) == sorted(keys)


def test_the_shard_is_taken_from_the_environment(project):
    project.write(PAGES)
    keys = count_keys(project, count=12)
    project.load(*keys, shards=2)
    for index in range(2):
        project.run("crawl", "pages", env={"CRAWL_SHARD": str(index), "CRAWL_SHARDS": "2"})
    assert project.counts == {"done": 12}


def test_two_spiders_of_one_project_have_a_store_each(project):
    project.write(STARTS, SETTINGS.replace("crawl.sqlite3", "100%%-%(spider)s.sqlite3"))
    for spider in ("pages", "others"):
        project.run("crawl", spider)
        with SQLiteWorkStore(str(project.folder / f"100%%-{spider}.sqlite3")) as store:
            assert store.counts(all_shards=True)["done"] == 1


def test_runspider_feeds_from_the_store(project):
    project.write(PAGES)
    project.load(*count_keys(project))
    project.run("runspider", "spiders.py")
    assert project.counts == {"done": 3}


@pytest.mark.parametrize("process", ["CrawlerProcess", "AsyncCrawlerProcess"])
def test_a_script_of_the_users_own_feeds_from_the_store(project, process):
    project.write(PAGES)
    project.load(*count_keys(project))
    (project.folder / "script.py").write_text(
        f"from scrapy.crawler import {process}\n"
        "from scrapy.utils.project import get_project_settings\n"
        "from spiders import Pages\n"
        f"process = {process}(get_project_settings())\n"
        "process.crawl(Pages)\n"
        "process.start()\n"
    )
    ended = project.wait(project.python("script.py"))
    assert ended.code == 0
    assert project.counts == {"done": 3}
    assert len(project.items) == 3


# The launcher's pipes.


class Pipes:
    """The launcher's ends of a worker's pipes."""

    def __init__(self) -> None:
        self.lifeline, self._held = os.pipe(), True
        self.status = os.pipe()

    @property
    def environment(self) -> dict[str, str]:
        return {
            LIFELINE_VARIABLE: describe_descriptor(self.lifeline[0]),
            STATUS_VARIABLE: describe_descriptor(self.status[1]),
        }

    def close_worker_ends(self) -> None:
        os.close(self.lifeline[0])
        os.close(self.status[1])

    def let_go(self) -> None:
        os.close(self.lifeline[1])

    def events(self) -> list[dict[str, object]]:
        """All that the worker said, once it has ended."""
        with os.fdopen(self.status[0]) as lines:
            return [json.loads(line) for line in lines]


def linked(project: Project, *arguments: str) -> tuple[object, Pipes]:
    pipes = Pipes()
    ends = (pipes.lifeline[0], pipes.status[1])
    process = project.start(*arguments, env=pipes.environment, pass_fds=ends)
    pipes.close_worker_ends()
    return process, pipes


def test_a_life_of_less_than_a_second_reports_what_it_has_ended(project):
    project.write(
        """
import asyncio, os

class Brief(scrapy.Spider):
    name = "brief"

    async def parse(self, response):
        if response.url.endswith("?1"):
            while not self.crawler.stats.get_value("hexshard/done"):
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            os._exit(3)
        yield {"url": response.url}
"""
    )
    project.load(*count_keys(project, count=2))
    process, pipes = linked(project, "crawl", "brief")
    assert project.wait(process).code == 3
    pipes.let_go()
    _, *progress = pipes.events()
    assert [event["done"] for event in progress][-1:] == [1]


def test_a_worker_reports_to_its_launcher(project):
    project.write(
        """
class Pages(scrapy.Spider):
    name = "pages"

    def parse(self, response):
        if response.url.endswith("?0"):
            raise ValueError("boom")
        yield {"url": response.url}
"""
    )
    missing = f"{project.origin}/status/404"
    slow = f"{project.origin}/slow?t=2.5"
    project.load(*count_keys(project, count=5), missing, slow)
    process, pipes = linked(project, "crawl", "pages")
    project.wait(process)
    pipes.let_go()
    opened, *progress, closed = pipes.events()
    assert opened == {
        "event": "opened",
        "pid": process.pid,
        "spider": "pages",
        "shard": 0,
        "shards": 1,
    }
    assert {event["event"] for event in progress} == {"progress"}
    assert progress[0]["running"] > 0
    # How much there is, and is left, for a launcher that knows no store.
    assert progress[-1]["keys"] == closed.pop("keys") == 7
    assert 0 <= closed.pop("open") <= 7
    assert closed == {
        "event": "closed",
        "reason": "finished",
        "done": 5,
        "failed": 0,
        "dead": 2,
        "faults": 1,
        "released": 0,
        "items": 5,
        "running": 0,
        "pages": 7,
        "fault": "spider: ValueError",  # a 404 is none
        "fault_times": 1,
    }


def test_a_worker_that_was_refused_by_its_store_reports_store_error(project):
    project.write(STARTS)
    project.load(f"{project.origin}/ok?1", shards=2)
    process, pipes = linked(project, "crawl", "pages")
    project.wait(process)
    pipes.let_go()
    assert pipes.events()[-1]["reason"] == "store_error"


@loops
def test_a_worker_stops_itself_when_its_launcher_has_gone(project, loop):
    project.write(SLOW)
    project.load(*count_keys(project, count=40))
    process, pipes = linked(project, "crawl", "pages", *LOOPS[loop])
    project.until(lambda: project.read("began"))
    pipes.let_go()
    gone = time.monotonic()
    project.wait(process)
    assert time.monotonic() - gone < 5 + 5  # and some for a busy machine
    assert "running" not in project.counts
    assert project.blame == [(0, 0, 0)]
    assert pipes.events()[-1]["reason"] == "shutdown"


def test_a_worker_that_hangs_stops_itself_when_its_launcher_has_gone(project):
    project.write(SLOW)
    project.load(*count_keys(project, "/hang", 4))
    process, pipes = linked(project, "crawl", "pages")
    project.until(lambda: project.store.exists() and project.counts.get("running", 0) == 4)
    pipes.let_go()
    gone = time.monotonic()
    project.wait(process)
    assert time.monotonic() - gone < 5 + 5
    assert project.counts == {"pending": 4}
    assert project.blame == [(0, 0, 0)]


def test_a_worker_that_is_killed_leaves_its_leases_to_its_successor(project):
    project.write(SLOW)
    project.load(*count_keys(project, "/hang", 4))
    process = project.start("crawl", "pages")
    project.until(lambda: project.store.exists() and project.counts.get("running", 0) == 4)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert project.counts == {"running": 4}
    with SQLiteWorkStore(str(project.store), ShardSpec(0, 1)) as store:
        assert len(store.claim(10, 60)) == 4
    assert Path(project.store).exists()
