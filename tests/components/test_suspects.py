"""Keys under which workers died: crawled last and alone, and waited for no longer than it helps."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from scrapy import Request
from support.crawling import crawl, crawl_test
from support.identities import dead_identity
from support.spiders import Plain, nap, until

from scrapy_hexshard import ShardSpec, SQLiteWorkStore, Work
from scrapy_hexshard.components.request_codec import LIVE_PAYLOAD
from scrapy_hexshard.components.worker import WorkerExtension

ALONE = ShardSpec(0, 1)
DEAD = dead_identity()


def let_workers_die(path: Any, keys: list[str | Work], times: int = 2) -> None:
    """Make *keys* the keys of a store, and suspects, by workers that die while they hold them."""
    with SQLiteWorkStore(str(path), ALONE) as store:
        store.enqueue(keys)
    for _ in range(times):
        with SQLiteWorkStore(str(path), ALONE, identity=DEAD) as worker:
            assert worker.claim()


@pytest.fixture
def claims(monkeypatch):
    """The keys of each claim, in order."""
    made: list[list[str]] = []
    claim = SQLiteWorkStore.claim

    def noted(self, *arguments):
        found = claim(self, *arguments)
        made.append([str(key) for key in found])
        return found

    monkeypatch.setattr(SQLiteWorkStore, "claim", noted)
    return made


class InFlight:
    """Notes how many requests there are when one of a suspect is among them."""

    def __init__(self) -> None:
        self.urls: list[str] = []
        self.most = 0

    def process_request(self, request: Any) -> None:
        self.urls.append(request.url)
        if any("suspect" in url for url in self.urls):
            self.most = max(self.most, len(self.urls))

    def process_response(self, request: Any, response: Any) -> Any:
        self.urls.remove(request.url)
        return response


@crawl_test
async def test_suspects_are_crawled_one_by_one_when_all_else_is_through(store_path, origin, claims):
    suspects = [f"{origin}/slow?t=1.2&suspect={n}" for n in range(2)]
    let_workers_die(store_path, suspects)
    claims.clear()
    flight = InFlight()

    class Watch(InFlight):
        def __new__(cls):
            return flight

    ordinary = [f"{origin}/slow?t=1.2&n={n}" for n in range(3)]
    settings = {"DOWNLOADER_MIDDLEWARES": {Watch: 1000}}
    crawled = await crawl(store_path, Plain, ordinary, settings)
    assert crawled.outcomes == {"done": 5}
    assert crawled.reason == "finished"
    assert flight.most == 1
    assert [made for made in claims if made] == [ordinary, suspects[:1], suspects[1:]]
    assert len(claims) < 30, "it does not wait between its claims"


@crawl_test
async def test_a_suspect_holds_nothing_up_while_start_may_yet_yield_its_request(
    store_path, origin, claims
):
    let_workers_die(store_path, [f"{origin}/ok?suspect"])
    claims.clear()

    class Slow(Plain):
        pages = 0

        async def start(self):
            for n in range(3):
                await nap(0.2)
                yield Request(f"{origin}/ok?{n}", callback=self.page)
                await until(lambda n=n: self.pages > n)
            await nap(0.5)

        def page(self, response):
            self.pages += 1
            yield {"page": response.url}

    crawled = await crawl(store_path, Slow)
    assert crawled.outcomes == {"done": 4}
    assert crawled.reason == "finished"
    assert len(claims) < 40, "it does not wait between its claims"


@crawl_test
async def test_a_suspect_gets_the_request_that_start_yields_for_it(store_path, origin):
    url = f"{origin}/ok?suspect"
    let_workers_die(store_path, [url])

    class Late(Plain):
        async def start(self):
            await nap(0.3)
            yield Request(url, callback=self.page)
            await nap(0.3)

        def page(self, response):
            yield {"page": response.url}

    crawled = await crawl(store_path, Late)
    assert crawled.items == [{"page": url}]


@crawl_test
async def test_a_worker_that_waits_for_live_requests_in_vain_leaves_the_suspects_and_ends(
    store_path, origin
):
    let_workers_die(store_path, [f"{origin}/ok?suspect"])
    keys = [Work(f"{origin}/ok?live", LIVE_PAYLOAD), f"{origin}/ok?1"]
    crawled = await crawl(store_path, Plain, keys)
    assert crawled.outcomes == {"done": 1}
    assert crawled.counts == {"pending": 2, "done": 1}
    assert crawled.reason == "unfinished"


@crawl_test
async def test_a_suspect_that_waits_for_its_live_request_in_vain_ends_the_worker_too(
    store_path, origin
):
    let_workers_die(store_path, [Work(f"{origin}/ok?live", LIVE_PAYLOAD)])
    settings = {"HEXSHARD_MAX_ATTEMPTS": 2, "HEXSHARD_RETRY_DELAY": 3, "RETRY_TIMES": 0}
    crawled = await crawl(store_path, Plain, [f"{origin}/heals?n=1&suspects"], settings)
    assert crawled.counts == {"pending": 1, "failed": 1}
    assert crawled.reason == "unfinished"


@crawl_test
async def test_a_key_that_is_given_up_at_a_claim_is_counted_and_told(store_path, origin, caplog):
    bad = f"{origin}/ok?suspect"
    let_workers_die(store_path, [bad], times=5)
    with caplog.at_level(logging.INFO):
        crawled = await crawl(store_path, Plain, [f"{origin}/ok?1"])
    assert crawled.counts == {"done": 1, "dead": 1}
    assert crawled.outcomes == {"done": 1, "worker died": 1}
    assert crawled.stat("hexshard/dead") == crawled.stat("hexshard/outcome/worker died") == 1
    totals = crawled.crawler.get_extension(WorkerExtension).work.report()
    assert [totals[name] for name in ("done", "dead", "faults")] == [1, 1, 1]
    told = [record for record in caplog.records if bad in record.getMessage()]
    assert [(record.levelname, record.getMessage().split(":")[0]) for record in told] == [
        ("WARNING", "Gave up http")
    ]
