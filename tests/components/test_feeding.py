"""How keys reach the engine, what ends them late or never, and when a worker is through."""

from __future__ import annotations

import asyncio
import functools
import json
import time
from time import monotonic
from typing import Any

import pytest
from scrapy import Request
from scrapy.core.scheduler import Scheduler
from scrapy.dupefilters import RFPDupeFilter
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule, SitemapSpider
from scrapy.utils.asyncio import call_later
from support.crawling import crawl, crawl_test
from support.spiders import Never, Plain, for_ever, nap, until

from scrapy_hexshard import ShardSpec, SQLiteWorkStore, Work
from scrapy_hexshard.errors import StoreError
from scrapy_hexshard.store.contract import Kind

SHORT_LEASE = {"HEXSHARD_LEASE_SECONDS": 1}


def keys(origin: str, count: int) -> list[str]:
    return [f"{origin}/ok?k={n}" for n in range(count)]


# Time.


@crawl_test
async def test_waiting_for_a_delay_longer_than_the_unit_timeout_is_no_lack_of_progress(
    store_path, origin
):
    settings = {
        "DOWNLOAD_DELAY": 0.4,
        "HEXSHARD_UNIT_TIMEOUT": 0.2,
    }
    crawled = await crawl(store_path, Plain, keys(origin, 6), settings)
    assert crawled.outcomes == {"done": 6}
    assert crawled.stat("hexshard/failed") == 0


class HangingMiddleware:
    async def process_request(self, request: Any) -> None:
        if "hang" in request.url:
            await for_ever()


class HangingPipeline:
    async def process_item(self, item: Any) -> Any:
        if "hang" in item["url"]:
            await for_ever()
        return item


class HangingCallback(Plain):
    async def parse(self, response: Any) -> Any:
        if "hang" in response.url:
            await for_ever()
        yield {"url": response.url}


class CancelledGenerator(Plain):
    def parse(self, response: Any) -> Any:
        if "hang" in response.url:
            raise asyncio.CancelledError
        yield {"url": response.url}


class CancelledFunction(Plain):
    def parse(self, response: Any) -> Any:
        if "hang" in response.url:
            raise asyncio.CancelledError
        return {"url": response.url}


class CancelledCoroutine(Plain):
    async def parse(self, response: Any) -> Any:
        await nap(0.01)
        if "hang" in response.url:
            raise asyncio.CancelledError
        return {"url": response.url}


@pytest.mark.parametrize(
    ("spider", "settings", "outcome"),
    [
        (HangingCallback, {}, "deadline"),
        (Plain, {"DOWNLOADER_MIDDLEWARES": {HangingMiddleware: 500}}, "deadline"),
        (Plain, {"ITEM_PIPELINES": {HangingPipeline: 1}}, "deadline"),
        (CancelledFunction, {}, "deadline"),
        (CancelledCoroutine, {}, "deadline"),
        (CancelledGenerator, {}, "spider: CancelledError"),
    ],
    ids=["callback", "middleware", "pipeline", "function", "coroutine", "generator"],
)
@crawl_test
async def test_a_unit_that_never_ends_fails_and_the_worker_still_finishes(
    store_path, origin, spider, settings, outcome
):
    work = [f"{origin}/ok?hang", *keys(origin, 3)]
    settings = {**settings, "HEXSHARD_UNIT_TIMEOUT": 0.5}
    crawled = await crawl(store_path, spider, work, settings)
    assert crawled.outcomes == {outcome: 1, "done": 3}
    assert crawled.counts == {"done": 3, "dead": 1}
    assert crawled.reason == "finished"
    assert len(crawled.items) == 3


class LosingScheduler(Scheduler):
    def next_request(self) -> Request | None:
        request = super().next_request()
        lost = request is not None and "lost" in request.url
        return super().next_request() if lost else request


@crawl_test
async def test_a_unit_whose_request_is_lost_on_the_way_fails_too(store_path, origin):
    settings = {"SCHEDULER": LosingScheduler, "HEXSHARD_UNIT_TIMEOUT": 0.5}
    crawled = await crawl(store_path, Plain, [f"{origin}/ok?lost", *keys(origin, 3)], settings)
    assert crawled.outcomes == {"deadline": 1, "done": 3}
    assert crawled.reason == "finished"


@crawl_test
async def test_units_that_fill_the_engine_and_never_end_stop_the_worker_as_stuck(
    store_path, origin
):
    work = [f"{origin}/ok?hang={n}" for n in range(2)] + keys(origin, 8)
    settings = {
        "DOWNLOADER_MIDDLEWARES": {HangingMiddleware: 500},
        "HEXSHARD_UNIT_TIMEOUT": 0.5,
        "HEXSHARD_MAX_UNITS": 2,
        "CONCURRENT_REQUESTS": 2,
    }
    crawled = await crawl(store_path, Plain, work, settings)
    assert crawled.reason == "stuck"
    assert crawled.counts == {"dead": 2, "pending": 8}


@crawl_test
async def test_a_unit_that_hung_once_is_done_by_its_next_attempt(store_path, origin):
    class HangsOnce(Plain):
        pages = 0

        async def parse(self, response):
            self.pages += 1
            if self.pages == 1:
                await for_ever()
            yield {"n": self.pages}

    settings = {"HEXSHARD_UNIT_TIMEOUT": 0.5, "HEXSHARD_MAX_ATTEMPTS": 2}
    crawled = await crawl(store_path, HangsOnce, keys(origin, 1), settings)
    assert crawled.outcomes == {"done": 1}
    assert crawled.items == [{"n": 2}]
    assert crawled.reason == "finished"


@crawl_test
async def test_what_an_ended_attempt_still_yields_is_discarded_and_counted(store_path, origin):
    class Late(Never):
        def request_for_key(self, key, payload):
            return Request(key, callback=self.late if "late" in key else self.patient)

        async def late(self, response):
            await until(lambda: self.stat("hexshard/outcome/deadline"))
            yield {"n": "late"}
            yield self.follow(response, "/ok?follow-up")
            yield self.follow(response, "/ok?another")
            raise ValueError("late")

        async def patient(self, response):
            # Keeps the worker from leaving before the late ones have spoken.
            for n in range(1000):
                if self.stat("hexshard/late/errors"):
                    break
                await nap(0.02)
                yield {"n": n} if n % 10 == 0 else None

    work = [f"{origin}/ok?late", f"{origin}/ok?patient"]
    crawled = await crawl(store_path, Late, work, {"HEXSHARD_UNIT_TIMEOUT": 1})
    assert crawled.outcomes == {"deadline": 1, "done": 1}
    assert {"n": "late"} not in crawled.items
    # Discarded before the pipelines, which may keep items of their own.
    assert crawled.stat("item_scraped_count") == len(crawled.items)
    assert crawled.stat("hexshard/late/items") == 1
    assert crawled.stat("hexshard/late/requests") == 2
    assert crawled.stat("hexshard/late/errors") == 1
    assert crawled.stat("downloader/request_count") == 2


@crawl_test
async def test_a_request_queued_by_an_attempt_that_has_ended_is_dropped_before_download(
    store_path, origin
):
    class Fans(Plain):
        async def parse(self, response):
            if "fan" in response.url:
                for n in range(5):
                    yield self.follow(response, f"/slow?t=0.3&{n}", callback=self.leaf)
                await for_ever()

        def leaf(self, response):
            return None

    settings = {
        "CONCURRENT_REQUESTS": 2,
        "DOWNLOAD_DELAY": 0.6,
        "HEXSHARD_UNIT_TIMEOUT": 0.5,
    }
    work = [f"{origin}/ok?fan", *keys(origin, 6)]
    crawled = await crawl(store_path, Fans, work, settings)
    assert crawled.outcomes["deadline"] == 1
    assert crawled.stat("hexshard/late/requests") + crawled.stat("hexshard/late/responses") >= 1
    assert "running" not in crawled.counts


# Leases.


def other_store(path: Any) -> SQLiteWorkStore:
    """A second worker of the same shard."""
    return SQLiteWorkStore(str(path), ShardSpec(0, 1))


@crawl_test
async def test_a_reactor_blocked_for_longer_than_the_lease_keeps_its_leases(store_path, origin):
    taken: list[str] = []

    class Blocks(Plain):
        def parse(self, response):
            with other_store(store_path) as other:
                end = monotonic() + 2.5
                while monotonic() < end:
                    taken.extend(other.claim(10, 60))
                    time.sleep(0.1)
            yield {"n": 1}

    crawled = await crawl(store_path, Blocks, keys(origin, 1), SHORT_LEASE)
    assert taken == []
    assert crawled.outcomes == {"done": 1}
    assert crawled.items == [{"n": 1}]


@crawl_test
async def test_a_reactor_blocked_for_longer_than_the_unit_timeout_loses_its_leases(
    store_path, origin
):
    taken: list[str] = []

    class Blocks(Plain):
        def parse(self, response):
            with other_store(store_path) as other:
                end = monotonic() + 20
                while not taken and monotonic() < end:
                    time.sleep(0.1)
                    for claim in other.claim(10, 60):
                        taken.append(str(claim))
                        other.complete(claim)
            yield {"n": 1}

    settings = {**SHORT_LEASE, "HEXSHARD_UNIT_TIMEOUT": 0.5}
    crawled = await crawl(store_path, Blocks, keys(origin, 1), settings)
    assert taken == keys(origin, 1)
    assert crawled.counts == {"done": 1}
    assert crawled.items == []
    assert crawled.stat("hexshard/stale") + crawled.stat("hexshard/lost") == 1
    assert crawled.reason == "finished"


@crawl_test
async def test_results_of_lost_leases_are_discarded_and_counted(
    store_path, origin, monkeypatch, caplog
):
    renew = SQLiteWorkStore.renew
    renewing = {"works": False}

    def broken(self, claims, lease_seconds):
        if not renewing["works"]:
            raise StoreError("Renewing is broken.")
        return renew(self, claims, lease_seconds)

    monkeypatch.setattr(SQLiteWorkStore, "renew", broken)

    class Slow(Plain):
        async def parse(self, response):
            with other_store(store_path) as other:
                taken = []
                await until(lambda: taken.extend(other.claim(10, 60)) or taken)
                renewing["works"] = True
                await until(lambda: self.stat("hexshard/lost"))
                other.complete(*taken)
            yield {"n": 1}
            yield self.follow(response, "/ok?follow-up")

    crawled = await crawl(store_path, Slow, keys(origin, 1), SHORT_LEASE)
    assert crawled.counts == {"done": 1}
    assert crawled.items == []
    assert crawled.stat("hexshard/lost") == 1
    assert crawled.stat("hexshard/late/items") == 1
    assert crawled.stat("hexshard/late/requests") == 1
    assert crawled.stat("hexshard/done") == 0
    assert "Renewing is broken" in caplog.text
    assert "leases were lost to another worker of shard 0/1" in caplog.text


@crawl_test
async def test_lost_leases_that_fill_the_engine_do_not_stop_the_worker(
    store_path, origin, monkeypatch
):
    renew = SQLiteWorkStore.renew
    renewing = {"works": False}

    def broken(self, claims, lease_seconds):
        if not renewing["works"]:
            raise StoreError("Renewing is broken.")
        return renew(self, claims, lease_seconds)

    monkeypatch.setattr(SQLiteWorkStore, "renew", broken)

    def taken_by(other):
        """The first key, once its lease has run out."""
        claims = other.claim(1, 60)
        if any("k=0" in claim for claim in claims):
            return claims
        other.release(*claims)
        return []

    class SlowDownload:
        def __init__(self, crawler):
            self.stats = crawler.stats

        from_crawler = classmethod(lambda cls, crawler: cls(crawler))

        async def process_request(self, request):
            if "k=0" in request.url:
                with other_store(store_path) as other:
                    await until(lambda: other.complete(*taken) if (taken := taken_by(other)) else 0)
                renewing["works"] = True
                await until(lambda: self.stats.get_value("hexshard/lost"))
                await nap(1.5)  # for as long as nothing else is worked on

    settings = {
        **SHORT_LEASE,
        "DOWNLOADER_MIDDLEWARES": {SlowDownload: 500},
        "HEXSHARD_MAX_UNITS": 1,
        "CONCURRENT_REQUESTS": 1,
    }
    crawled = await crawl(store_path, Plain, keys(origin, 3), settings)
    assert crawled.stat("hexshard/lost") >= 1
    assert crawled.reason == "finished"
    assert crawled.counts == {"done": 3}


@crawl_test
async def test_a_bug_of_the_store_stops_the_worker(store_path, origin, monkeypatch, caplog):
    settle = SQLiteWorkStore.settle

    def buggy(self, settlements):
        settlements = list(settlements)
        if any(each.kind is Kind.COMPLETE for each in settlements):
            raise KeyError("bug")
        return settle(self, settlements)

    monkeypatch.setattr(SQLiteWorkStore, "settle", buggy)
    crawled = await crawl(store_path, Plain, keys(origin, 3))
    assert crawled.reason == "store_error"
    assert crawled.counts == {"pending": 3}
    assert "A store operation failed with KeyError: 'bug'" in caplog.text


@crawl_test
async def test_closing_while_start_waits_is_no_failure_of_start(store_path, origin, caplog):
    class Waits(Plain):
        async def start(self):
            yield Request(f"{origin}/ok?0")
            await nap(60)

    crawled = await crawl(store_path, Waits, settings={"CLOSESPIDER_ITEMCOUNT": 1})
    assert crawled.reason == "closespider_itemcount"
    assert "start() failed" not in caplog.text


@crawl_test
async def test_a_worker_waits_while_another_holds_a_key_of_its_shard(store_path, origin):
    with SQLiteWorkStore(str(store_path), ShardSpec(0, 1)) as store:
        store.enqueue([f"{origin}/ok?held"])
    with other_store(store_path) as other:
        held = other.claim(1, 60)

        class Waits(Plain):
            def parse(self, response):
                yield {"url": response.url}
                if "k=0" in response.url:  # with this, the worker's own work is done
                    call_later(1.0, other.release, *held)

        crawled = await crawl(store_path, Waits, keys(origin, 1))
    assert crawled.outcomes == {"done": 2}
    assert crawled.reason == "finished"


# Attempts.


@crawl_test
async def test_a_worker_waits_for_its_own_retries_and_ends_finished(store_path, origin):
    class Heals(Plain):
        pages = 0

        def parse(self, response):
            self.pages += 1
            if self.pages < 3:
                raise ValueError(self.pages)
            yield {"n": self.pages}

    settings = {"HEXSHARD_MAX_ATTEMPTS": 3, "HEXSHARD_RETRY_DELAY": 0.3}
    crawled = await crawl(store_path, Heals, keys(origin, 1), settings)
    assert crawled.outcomes == {"done": 1}
    assert crawled.items == [{"n": 3}]
    assert crawled.stat("hexshard/failed") == 2
    assert crawled.stat("hexshard/outcome/spider: ValueError") == 2
    assert crawled.reason == "finished"


@crawl_test
async def test_a_key_is_dead_after_max_attempts(store_path, origin):
    class Raises(Plain):
        pages = 0

        def parse(self, response):
            type(self).pages += 1
            raise ValueError("boom")

    settings = {"HEXSHARD_MAX_ATTEMPTS": 4, "HEXSHARD_RETRY_DELAY": 0.01}
    crawled = await crawl(store_path, Raises, keys(origin, 1), settings)
    assert Raises.pages == 4
    assert crawled.counts == {"dead": 1}
    assert crawled.stat("hexshard/failed") == 3
    assert crawled.stat("hexshard/dead") == 1
    assert crawled.reason == "finished"


@crawl_test
async def test_each_attempt_starts_from_a_fresh_copy_of_the_request(store_path, origin):
    class Spoils(Never):
        attempts = 0

        async def start(self):
            yield Request(f"{origin}/ok?spoils", callback=self.page, meta={"list": []})

        def page(self, response):
            response.meta["list"].append("spoilt")
            self.attempts += 1
            if self.attempts == 1:
                raise ValueError("again")
            yield {"list": response.meta["list"], "depth": response.meta["depth"]}

    crawled = await crawl(store_path, Spoils, [], {"HEXSHARD_MAX_ATTEMPTS": 2})
    assert crawled.items == [{"list": ["spoilt"], "depth": 0}]


# Order.


@crawl_test
async def test_keys_of_higher_priority_come_first_then_the_first_in(store_path, origin):
    seen: list[str] = []

    class Records(Plain):
        def parse(self, response):
            seen.append(response.url.rsplit("=", 1)[1])
            yield {}

    work = [Work(f"{origin}/ok?p={n}", priority=n % 3) for n in range(9)]
    settings = {"HEXSHARD_MAX_UNITS": 1, "CONCURRENT_REQUESTS": 1}
    await crawl(store_path, Records, work, settings)
    assert seen == ["2", "5", "8", "1", "4", "7", "0", "3", "6"]


@crawl_test
async def test_no_more_units_are_open_than_max_units(store_path, origin):
    class Counts(Plain):
        now = most = 0

        async def parse(self, response):
            cls = type(self)
            cls.now += 1
            cls.most = max(cls.most, cls.now)
            await nap(0.05)
            cls.now -= 1
            yield {}

    crawled = await crawl(store_path, Counts, keys(origin, 20), {"HEXSHARD_MAX_UNITS": 3})
    assert crawled.outcomes == {"done": 20}
    assert Counts.most == 3


# Requests for keys.


@crawl_test
async def test_request_for_key_builds_the_request_of_an_id_from_its_payload(store_path, origin):
    class Ids(Plain):
        def request_for_key(self, key, payload):
            number = payload["n"] if payload else 0
            return Request(f"{origin}/ok?id={key}", cb_kwargs={"key": key, "n": number})

        def parse(self, response, key, n):
            yield {"key": key, "n": n}

    work = [Work("sku-1", json.dumps({"n": 7})), "sku-2"]
    crawled = await crawl(store_path, Ids, work)
    assert crawled.outcomes == {"done": 2}
    assert sorted(crawled.items, key=str) == [{"key": "sku-1", "n": 7}, {"key": "sku-2", "n": 0}]


@pytest.mark.parametrize("name", ["LookupError", "TypeError"])
@crawl_test
async def test_request_for_key_that_fails_fails_the_key(store_path, origin, name, caplog):
    class Fails(Never):
        def request_for_key(self, key, payload):
            if name == "LookupError":
                raise LookupError(key)
            return key

    crawled = await crawl(store_path, Fails, ["sku-1"], {"HEXSHARD_MAX_ATTEMPTS": 2})
    assert crawled.outcomes == {f"spider: {name}": 1}
    assert crawled.counts == {"dead": 1}
    assert crawled.stat("hexshard/failed") == 1
    assert "request_for_key failed for sku-1" in caplog.text


@crawl_test
async def test_an_id_that_nothing_builds_a_request_for_stays_pending_with_a_sentence(
    store_path, origin, caplog
):
    crawled = await crawl(store_path, Plain, ["sku-1"])
    assert crawled.reason == "no_request"
    assert crawled.counts == {"pending": 1}
    assert "The key sku-1 is no URL, and the spider has no request_for_key" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("payload", ['{"n": 1}', "[1]", '"text"', '{"hexshard": 99}'])
@crawl_test
async def test_a_payload_that_is_no_request_is_dead_at_once(store_path, origin, payload):
    work = [Work(f"{origin}/ok?p", payload)]
    crawled = await crawl(store_path, Never, work, {"HEXSHARD_MAX_ATTEMPTS": 3})
    assert crawled.counts == {"dead": 1}
    [outcome] = crawled.outcomes
    assert outcome.startswith("payload: ")
    assert crawled.stat("hexshard/failed") == 0
    assert crawled.stat("hexshard/outcome/payload") == 1  # its text may be another for each key


@crawl_test
async def test_a_payload_whose_callback_the_spider_has_lost_is_dead_at_once(store_path, origin):
    payload = json.dumps({"hexshard": 1, "callback": "gone"})
    crawled = await crawl(store_path, Never, [Work(f"{origin}/ok?p", payload)])
    [outcome] = crawled.outcomes
    assert outcome.startswith("payload: ")
    assert "gone" in outcome


# Spiders of every kind.


@crawl_test
async def test_the_rules_of_a_crawl_spider_belong_to_the_unit(store_path, origin):
    class Rules(CrawlSpider):
        name = "plain"
        rules = (Rule(LinkExtractor(allow="leaf"), callback="leaf"),)

        def parse_start_url(self, response):
            yield {"page": "start"}

        def leaf(self, response):
            yield {"page": "leaf"}

    page = "/page?b=" + '<a href="/ok?leaf=1">1</a><a href="/ok?leaf=2">2</a>'
    crawled = await crawl(store_path, Rules, [f"{origin}{page}"])
    assert crawled.outcomes == {"done": 1}
    assert sorted(item["page"] for item in crawled.items) == ["leaf", "leaf", "start"]


@crawl_test
async def test_a_sitemap_spider_starts_from_its_own_sitemap(store_path, origin):
    class Map(SitemapSpider):
        name = "plain"
        sitemap_urls = (f"{origin}/sitemap.xml?o={origin}",)

        def parse(self, response):
            yield {"url": response.url}

    crawled = await crawl(store_path, Map, [])
    assert crawled.outcomes == {"done": 1}
    assert len(crawled.items) == 3


def by_a_plugin(method: Any) -> Any:
    @functools.wraps(method)
    async def wrapped(self: Any, response: Any, **kwargs: Any) -> Any:
        await nap(0.01)
        for each in method(self, response, page=response.url, **kwargs):
            yield each

    return wrapped


@crawl_test
async def test_callbacks_that_another_plugin_wraps_still_work(store_path, origin):
    class Wrapped(Plain):
        async def start(self):
            yield Request(f"{origin}/ok?start", callback=self.leaf, cb_kwargs={"n": 1})

        @by_a_plugin
        def parse(self, response, page):
            yield self.follow(response, "/ok?leaf", callback=self.leaf, cb_kwargs={"n": 2})

        @by_a_plugin
        def leaf(self, response, page, n):
            yield {"n": n}

    crawled = await crawl(store_path, Wrapped, keys(origin, 1))
    assert crawled.outcomes == {"done": 2}
    assert sorted(item["n"] for item in crawled.items) == [1, 2]


# The duplicate filter.


class OwnFilter(RFPDupeFilter):
    """A user's."""


@crawl_test
async def test_a_users_own_duplicate_filter_stays_and_what_it_filters_is_warned_of_once(
    store_path, origin, caplog
):
    class Shared(Plain):
        def parse(self, response):
            yield {"n": 1}
            yield self.follow(response, "/ok?api", callback=self.leaf)

        def leaf(self, response):
            yield {"n": 2}

    settings = {"DUPEFILTER_CLASS": OwnFilter, "CONCURRENT_REQUESTS": 1}
    crawled = await crawl(store_path, Shared, keys(origin, 3), settings)
    assert crawled.outcomes == {"done": 3}
    assert len(crawled.items) == 4
    assert crawled.stat("hexshard/filtered") == 2
    assert caplog.text.count("DUPEFILTER_CLASS filtered a request of") == 1


@crawl_test
async def test_under_drop_one_filter_serves_all_units_and_forgets_failed_attempts(
    store_path, origin
):
    class Shared(Plain):
        def parse(self, response):
            yield {"n": 1}
            yield self.follow(response, "/heals?n=1&s=500&drop", callback=self.leaf)

        def leaf(self, response):
            yield {"n": 2}

    settings = {
        "HEXSHARD_FOLLOW": "drop",
        "HEXSHARD_MAX_ATTEMPTS": 3,
        "RETRY_TIMES": 0,
        "HEXSHARD_MAX_UNITS": 1,
    }
    crawled = await crawl(store_path, Shared, keys(origin, 3), settings)
    assert crawled.outcomes == {"done": 3}
    # The first attempt fails on the API, its repetition asks again, the other units find it asked.
    assert sorted(item["n"] for item in crawled.items) == [1, 1, 1, 2]
    assert crawled.stat("hexshard/failed") == 1
    assert crawled.stat("hexshard/filtered") == 2


@crawl_test
async def test_under_drop_the_follow_ups_of_other_shards_are_dropped(store_path, origin):
    from scrapy_hexshard import stable_owner

    class Fans(Plain):
        def parse(self, response):
            for n in range(20):
                yield self.follow(response, f"/ok?f={n}", callback=self.leaf)

        def leaf(self, response):
            yield {"url": response.url}

    key = next(f"{origin}/ok?{n}" for n in range(99) if stable_owner(f"{origin}/ok?{n}", 2) == 0)
    owned = [n for n in range(20) if stable_owner(f"{origin}/ok?f={n}", 2) == 0]
    crawled = await crawl(
        store_path, Fans, [key], {"HEXSHARD_FOLLOW": "drop"}, shard="0", shards="2"
    )
    assert crawled.outcomes == {"done": 1}
    assert sorted(int(item["url"].rsplit("=")[1]) for item in crawled.items) == owned
    assert crawled.stat("hexshard/unowned") == 20 - len(owned)


# What is said and counted.


@crawl_test
async def test_a_unit_of_a_thousand_requests_is_warned_of_once(
    store_path, origin, caplog, monkeypatch
):
    from scrapy_hexshard.components import unit_events

    assert unit_events.MANY_REQUESTS == 1000
    monkeypatch.setattr(unit_events, "MANY_REQUESTS", 20)

    class Fans(Plain):
        def parse(self, response):
            for n in range(50):
                yield self.follow(response, f"/ok?f={n}", callback=self.leaf)

        def leaf(self, response):
            yield {"n": 1}

    crawled = await crawl(store_path, Fans, keys(origin, 2))
    assert crawled.outcomes == {"done": 2}
    assert caplog.text.count("is one unit of work") == 1
    assert "make it a key" in caplog.text


@crawl_test
async def test_share_rate_divides_the_rate_among_the_shards_and_the_total_is_logged(
    store_path, origin, caplog
):
    caplog.set_level("INFO")
    settings = {
        "HEXSHARD_SHARE_RATE": True,
        "DOWNLOAD_DELAY": 0.1,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
    }
    crawled = await crawl(store_path, Plain, [], settings, shard="1", shards="4")
    assert crawled.crawler.settings.getfloat("DOWNLOAD_DELAY") == pytest.approx(0.4)
    assert crawled.crawler.settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN") == 2
    assert "this worker 2 at a time, 0.4 s apart" in caplog.text
    assert "all of the crawl, 8 at a time, 0.1 s apart" in caplog.text
    assert "Shard 1 of 4, from the spider arguments." in caplog.text


@crawl_test
async def test_without_share_rate_each_worker_has_the_whole_rate_and_the_total_is_logged(
    store_path, origin, caplog
):
    caplog.set_level("INFO")
    settings = {"DOWNLOAD_DELAY": 0.5, "CONCURRENT_REQUESTS_PER_DOMAIN": 3}
    await crawl(store_path, Plain, [], settings, shard="0", shards="2")
    assert "this worker 3 at a time, 0.5 s apart" in caplog.text
    assert "all of the crawl, 6 at a time, 0.25 s apart" in caplog.text


@crawl_test
async def test_what_is_counted_is_in_the_stats(store_path, origin):
    class Mixed(Plain):
        def parse(self, response):
            if "k=0" in response.url:
                raise ValueError("boom")
            yield {"n": 1}
            yield {"n": 2}

    crawled = await crawl(
        store_path, Mixed, [*keys(origin, 4), f"{origin}/status/404"], shard="0", shards="1"
    )
    stats = crawled.crawler.stats.get_stats()
    ours = {name: value for name, value in stats.items() if name.startswith("hexshard/")}
    assert ours.pop("hexshard/gate_wait_seconds") >= 0
    assert ours == {
        "hexshard/shard": 0,
        "hexshard/shards": 1,
        "hexshard/done": 3,
        "hexshard/items": 6,
        "hexshard/dead": 2,
        "hexshard/released": 0,
        "hexshard/outcome/done": 3,
        "hexshard/outcome/http 404": 1,
        "hexshard/outcome/spider: ValueError": 1,
    }


@crawl_test
async def test_done_keys_are_not_crawled_again_in_a_second_run(store_path, origin):
    await crawl(store_path, Plain, keys(origin, 3))
    crawled = await crawl(store_path, Plain, keys(origin, 4))
    assert crawled.stat("downloader/request_count") == 1
    assert crawled.outcomes == {"done": 4}
    assert len(crawled.items) == 4


@crawl_test
async def test_a_store_with_nothing_to_do_is_finished_at_once(store_path, origin):
    crawled = await crawl(store_path, Plain, [])
    assert crawled.reason == "finished"
    assert crawled.counts == {}
