"""What becomes of the spider's own start requests."""

from __future__ import annotations

import json
import threading
from time import thread_time
from typing import Any

import pytest
from scrapy import FormRequest, Request
from scrapy.exceptions import CloseSpider
from scrapy.utils.asyncio import call_later
from support.crawling import crawl, crawl_test
from support.spiders import Never, Plain, nap, until

from scrapy_hexshard import ShardSpec, SQLiteWorkStore, Work, stable_owner
from scrapy_hexshard.components.request_codec import LIVE_PAYLOAD, is_live


def payloads(path: Any) -> dict[str, str | None]:
    """The payload of each key that could be claimed now."""
    with SQLiteWorkStore(str(path), ShardSpec(0, 1)) as store:
        claims = store.claim(1000, 60)
        store.release(*claims)
        return {str(claim): claim.payload for claim in claims}


class Starts(Plain):
    """Yields what the test has put in ``work``, and stores it with a callback of its own."""

    origin = ""
    work: Any = ()

    async def start(self) -> Any:
        for each in self.work:
            yield each

    def page(self, response: Any, **kwargs: Any) -> Any:
        yield {"page": response.url.rsplit("?", 1)[-1], **kwargs}

    def parse(self, response: Any) -> Any:
        yield {"parsed": response.url.rsplit("?", 1)[-1]}


# Callbacks.


@crawl_test
async def test_the_callbacks_of_start_win_over_keys_loaded_before_without_one(store_path, origin):
    class Calls(Starts):
        async def start(self):
            for n in range(30):
                yield Request(f"{origin}/ok?{n}", callback=self.page, cb_kwargs={"n": n})

    crawled = await crawl(store_path, Calls, [f"{origin}/ok?{n}" for n in range(30)])
    assert crawled.outcomes == {"done": 30}
    assert sorted(item["n"] for item in crawled.items) == list(range(30))


@crawl_test
async def test_the_callbacks_of_a_slow_start_win_too(store_path, origin):
    class Slow(Starts):
        async def start(self):
            for n in range(4):
                await nap(0.3)
                yield Request(f"{origin}/ok?{n}", callback=self.page, cb_kwargs={"n": n})

    crawled = await crawl(store_path, Slow, [f"{origin}/ok?{n}" for n in range(5)])
    assert crawled.outcomes == {"done": 5}
    assert sorted(item["n"] for item in crawled.items if "n" in item) == [0, 1, 2, 3]
    assert {"parsed": "4"} in crawled.items


@crawl_test
async def test_a_start_that_waits_for_its_own_page_gets_it(store_path, origin, monkeypatch):
    claims = []
    claim = SQLiteWorkStore.claim

    def counted(self, limit, lease_seconds):
        claims.append(limit)
        return claim(self, limit, lease_seconds)

    class Waits(Starts):
        pages = 0

        async def start(self):
            for n in range(3):
                yield Request(f"{origin}/ok?{n}", callback=self.page)
                await until(lambda n=n: self.pages > n)
            await nap(0.5)

        def page(self, response):
            self.pages += 1
            yield {"page": response.url}

    monkeypatch.setattr(SQLiteWorkStore, "claim", counted)
    crawled = await crawl(store_path, Waits, [f"{origin}/ok?{n}" for n in range(3)])
    assert crawled.outcomes == {"done": 3}
    assert len(crawled.items) == 3
    # A key that waits for its request is not claimed and given back all the while.
    assert len(claims) < 30


@crawl_test
async def test_keys_that_no_start_request_comes_for_are_crawled_after_start(store_path, origin):
    class Quiet(Starts):
        async def start(self):
            await nap(0.3)
            for each in self.work:
                yield each

    crawled = await crawl(store_path, Quiet, [f"{origin}/ok?{n}" for n in range(3)])
    assert crawled.reason == "finished"
    assert crawled.outcomes == {"done": 3}


@crawl_test
async def test_the_callbacks_of_start_win_on_a_retry_too(store_path, origin):
    class Retries(Starts):
        attempts = 0

        async def start(self):
            await nap(0.3)
            yield Request(f"{origin}/ok?0", callback=self.page, cb_kwargs={"n": 0})

        def page(self, response, n):
            self.attempts += 1
            if self.attempts < 3:
                raise ValueError("again")
            yield {"n": n}

    crawled = await crawl(store_path, Retries, [f"{origin}/ok?0"], {"HEXSHARD_MAX_ATTEMPTS": 3})
    assert crawled.items == [{"n": 0}]


@pytest.mark.parametrize("when", ["read", "being stored"])
@crawl_test
async def test_a_callback_wins_though_its_key_is_claimed_while_its_request_is(
    store_path, origin, monkeypatch, when
):
    """The answer of the claim comes after start() has yielded the key, and it has no payload."""
    claimed, yielded = threading.Event(), threading.Event()
    claim = SQLiteWorkStore.claim

    def slow_claim(self, limit, lease_seconds):
        claims = claim(self, limit, lease_seconds)
        claimed.set()
        yielded.wait(20)
        return claims

    class Overtaken(Starts):
        async def start(self):
            await until(claimed.is_set)
            if when == "read":  # behind one that is being stored
                yield Request(f"{origin}/ok?1", callback=self.page)
            yield Request(f"{origin}/ok?0", callback=self.page, cb_kwargs={"n": 0})
            call_later(0.3, yielded.set)
            if when == "read":
                await nap(0.8)

    with SQLiteWorkStore(str(store_path), ShardSpec(0, 1)) as store:
        store.enqueue([f"{origin}/ok?0"])
    monkeypatch.setattr(SQLiteWorkStore, "claim", slow_claim)
    crawled = await crawl(store_path, Overtaken)
    assert {"page": "0", "n": 0} in crawled.items
    assert {"parsed": "0"} not in crawled.items


@crawl_test
async def test_a_refused_store_costs_the_origin_no_request_of_start(store_path, origin):
    class Lists(Starts):
        began = False

        async def start(self):
            type(self).began = True
            yield Request(f"{origin}/ok")

    with SQLiteWorkStore(str(store_path), ShardSpec(0, 4)) as store:
        store.bind_spider("another")
    crawled = await crawl(store_path, Lists, shard="0", shards="4")
    assert crawled.reason == "store_error"
    assert not Lists.began


@crawl_test
async def test_request_for_key_sees_no_payload_but_the_users_own(store_path, origin):
    class Builds(Starts):
        seen: list[Any] = []  # noqa: RUF012

        async def start(self):
            yield Request(f"{origin}/ok?0", callback=self.page, cb_kwargs={"n": 0})

        def request_for_key(self, key, payload):
            self.seen.append(payload)
            return Request(key, callback=self.parse)

    work = [Work(f"{origin}/ok?1", json.dumps({"sku": 1}))]
    crawled = await crawl(store_path, Builds, work)
    assert crawled.outcomes == {"done": 2}
    assert Builds.seen in ([None, {"sku": 1}], [{"sku": 1}, None])


@crawl_test
async def test_request_for_key_wins_over_the_request_of_start(store_path, origin):
    class Builds(Starts):
        async def start(self):
            yield Request(f"{origin}/ok?0", callback=self.page)

        def request_for_key(self, key, payload):
            return Request(key, callback=self.built)

        def built(self, response):
            yield {"built": True}

    crawled = await crawl(store_path, Builds)
    assert crawled.items == [{"built": True}]


@pytest.mark.parametrize(("errback", "outcome"), [(False, "http 404"), (True, "done")])
@crawl_test
async def test_a_missing_start_page_with_and_without_an_errback(
    store_path, origin, errback, outcome
):
    class Missing(Starts):
        async def start(self):
            handler = self.missing if errback else None
            yield Request(f"{origin}/status/404?s", callback=self.page, errback=handler)

        def missing(self, failure):
            yield {"missing": failure.value.response.status}

    crawled = await crawl(store_path, Missing)
    assert crawled.outcomes == {outcome: 1}
    assert crawled.items == ([{"missing": 404}] if errback else [])


# What is stored.


@crawl_test
async def test_a_spider_without_start_requests_is_fed_from_the_store_alone(store_path, origin):
    crawled = await crawl(store_path, Starts, [f"{origin}/ok?{n}" for n in range(3)])
    assert crawled.outcomes == {"done": 3}
    assert crawled.stat("hexshard/start_keys") == 0


@crawl_test
async def test_start_keys_that_are_done_are_not_crawled_again(store_path, origin):
    class Two(Starts):
        async def start(self):
            yield Request(f"{origin}/ok?1", callback=self.page)
            yield Request(f"{origin.upper().replace('HTTP', 'http')}/ok?1", callback=self.page)
            yield Request(f"{origin}/ok?2", callback=self.page)

    first = await crawl(store_path, Two)
    assert first.outcomes == {"done": 2}
    assert first.stat("hexshard/start_keys") == 2
    second = await crawl(store_path, Two)
    assert second.stat("downloader/request_count") == 0
    assert second.outcomes == {"done": 2}
    assert second.reason == "finished"


@crawl_test
async def test_only_owned_start_requests_are_stored_and_all_shards_together_store_all(
    store_path, origin
):
    urls = [f"{origin}/ok?{n}" for n in range(20)]

    class All(Starts):
        async def start(self):
            for url in urls:
                yield Request(url, callback=self.page)

    for shard in range(3):
        crawled = await crawl(store_path, All, shard=str(shard), shards="3")
        owned = [url for url in urls if stable_owner(url, 3) == shard]
        assert crawled.stat("hexshard/start_keys") == len(owned)
        assert crawled.stat("hexshard/unowned") == 20 - len(owned)
        assert crawled.stat("downloader/request_count") == len(owned)
    assert crawled.outcomes == {"done": 20}
    assert len({item["page"] for item in crawled.items}) == 20


@crawl_test
async def test_start_requests_are_claimed_by_their_priority(store_path, origin):
    class Ranked(Starts):
        async def start(self):
            for n in range(9):
                yield Request(f"{origin}/ok?{n}", callback=self.page, priority=n % 3)

    # The first run only stores them.
    class StoresOnly(Ranked):
        def page(self, response):
            raise CloseSpider("enough")

    one = {"HEXSHARD_MAX_UNITS": 1, "CONCURRENT_REQUESTS": 1}
    crawled = await crawl(store_path, StoresOnly, settings=one)
    assert crawled.counts == {"pending": 9}
    crawled = await crawl(store_path, Starts, settings=one)
    assert [item["page"] for item in crawled.items] == ["2", "5", "8", "1", "4", "7", "0", "3", "6"]


@crawl_test
async def test_a_priority_beyond_32_bits_is_stored_as_the_highest(store_path, origin):
    class Huge(Starts):
        async def start(self):
            yield Request(f"{origin}/ok?0", callback=self.page, priority=2**40)
            yield Request(f"{origin}/ok?1", callback=self.page, priority=-(2**40))

    crawled = await crawl(store_path, Huge)
    assert crawled.outcomes == {"done": 2}


@crawl_test
async def test_a_post_has_a_key_of_its_own(store_path, origin):
    class Posts(Starts):
        async def start(self):
            yield Request(f"{origin}/ok", callback=self.page, cb_kwargs={"by": "get"})
            for word in ("a", "b"):
                form = {"word": word}
                yield FormRequest(
                    f"{origin}/ok", formdata=form, callback=self.page, cb_kwargs={"by": word}
                )

    crawled = await crawl(store_path, Posts)
    assert crawled.outcomes == {"done": 3}
    assert sorted(item["by"] for item in crawled.items) == ["a", "b", "get"]
    again = await crawl(store_path, Posts)
    assert again.stat("downloader/request_count") == 0


@crawl_test
async def test_a_shard_key_names_a_start_request(store_path, origin):
    class Named(Starts):
        async def start(self):
            for n in range(2):
                meta = {"shard_key": f"sku-{n}"}
                yield Request(f"{origin}/ok?same", callback=self.page, meta=meta)

    crawled = await crawl(store_path, Named)
    assert crawled.outcomes == {"done": 2}
    assert crawled.stat("downloader/request_count") == 2


@crawl_test
async def test_the_first_of_two_differing_requests_for_one_key_wins(store_path, origin, caplog):
    class Differs(Starts):
        async def start(self):
            for n in (0, 0, 1, 2):
                yield Request(f"{origin}/ok?0", callback=self.page, cb_kwargs={"n": n})

    crawled = await crawl(store_path, Differs)
    assert crawled.items == [{"page": "0", "n": 0}]
    assert crawled.stat("hexshard/differing_starts") == 2
    assert caplog.text.count("two different requests for the key") == 1


@crawl_test
async def test_start_urls_that_can_be_no_key_are_counted_and_skipped(store_path, origin, caplog):
    class Invalid(Starts):
        async def start(self):
            yield Request(f"{origin}/ok?{'x' * 9000}", callback=self.page)
            yield Request(f"{origin}/ok?{'y' * 9000}", callback=self.page)
            yield Request(f"{origin}/ok?0", callback=self.page)

    crawled = await crawl(store_path, Invalid)
    assert crawled.outcomes == {"done": 1}
    assert crawled.stat("hexshard/invalid_keys") == 2
    assert caplog.text.count("A start request is skipped") == 1


# Requests that live in their worker only.


def live_requests(spider: Any, origin: str) -> list[Request]:
    headers = {"Authorization": "Bearer s3cret"}
    return [
        Request(f"{origin}/ok?lambda", callback=lambda response: {"live": "lambda"}),
        Request(f"{origin}/ok?cookies", callback=spider.page, cookies={"session": "s3cret"}),
        Request(f"{origin}/ok?header", callback=spider.page, headers=headers),
        Request(f"{origin}/ok?object", callback=spider.page, meta={"object": object()}),
        Request(f"{origin}/ok?login", callback=spider.page, meta={"http_pass": "s3cret"}),
    ]


@crawl_test
async def test_requests_that_cannot_be_stored_are_crawled_live_and_leave_no_secret(
    store_path, origin, caplog
):
    class Live(Starts):
        async def start(self):
            for request in live_requests(self, origin):
                yield request

    crawled = await crawl(store_path, Live)
    assert crawled.outcomes == {"done": 5}
    assert len(crawled.items) == 5
    assert crawled.stat("hexshard/live_only") == 5
    assert caplog.text.count("Start requests that cannot be stored live in this worker only") == 1
    for file in store_path.parent.iterdir():
        assert b"s3cret" not in file.read_bytes()


@crawl_test
async def test_a_live_request_is_there_for_a_retry(store_path, origin):
    class Live(Starts):
        attempts = 0

        async def start(self):
            yield Request(f"{origin}/ok?0", callback=self.page, cookies={"a": "b"})

        def page(self, response):
            self.attempts += 1
            if self.attempts == 1:
                raise ValueError("again")
            yield {"n": self.attempts}

    crawled = await crawl(store_path, Live, settings={"HEXSHARD_MAX_ATTEMPTS": 2})
    assert crawled.items == [{"n": 2}]


@crawl_test
async def test_live_keys_that_a_later_start_does_not_yield_stay_pending_as_unfinished(
    store_path, origin, caplog
):
    class Live(Starts):
        async def start(self):
            for request in live_requests(self, origin):
                yield request

        def page(self, response):
            raise CloseSpider("enough")

    one = {"HEXSHARD_MAX_UNITS": 1, "CONCURRENT_REQUESTS": 1}
    await crawl(store_path, Live, settings=one)
    stored = payloads(store_path)
    assert len(stored) == 4
    assert all(is_live(payload) for payload in stored.values())

    class Fewer(Starts):
        async def start(self):
            yield live_requests(self, origin)[1]

    crawled = await crawl(store_path, Fewer, [f"{origin}/ok?plain"])
    assert crawled.reason == "unfinished"
    assert crawled.counts == {"done": 3, "pending": 3}
    assert crawled.stat("hexshard/released") == 3
    assert "3 keys wait for start requests that could not be stored" in caplog.text


@crawl_test
async def test_more_waiting_live_keys_than_are_ever_held_do_not_hold_up_the_others(
    store_path, origin, monkeypatch
):
    monkeypatch.setattr("scrapy_hexshard.components.feed.MAX_WAITING", 2)
    live = [Work(f"{origin}/ok?live={n}", LIVE_PAYLOAD, priority=1) for n in range(50)]
    settings = {"HEXSHARD_MAX_UNITS": 4}
    crawled = await crawl(store_path, Starts, [*live, f"{origin}/ok?plain"], settings)
    assert crawled.reason == "unfinished"
    assert crawled.counts == {"done": 1, "pending": 50}


# start() itself.


@crawl_test
async def test_items_of_start_go_to_the_pipelines_only_and_are_warned_of_once(
    store_path, origin, caplog
):
    class Items(Starts):
        async def start(self):
            yield {"from": "start"}
            yield Request(f"{origin}/ok?0", callback=self.page)
            yield {"from": "start"}

    crawled = await crawl(store_path, Items)
    assert crawled.items == [{"page": "0"}]
    assert crawled.stat("item_scraped_count") == 3
    assert crawled.stat("hexshard/start_items") == 2
    assert caplog.text.count("start() yields items") == 1


@crawl_test
async def test_items_of_start_are_not_warned_of_where_no_items_are_stored(
    store_path, origin, caplog
):
    class Items(Starts):
        async def start(self):
            yield {"from": "start"}

    crawled = await crawl(store_path, Items, settings={"HEXSHARD_ITEMS": False})
    assert crawled.stat("hexshard/start_items") == 1
    assert "start() yields items" not in caplog.text


@crawl_test
async def test_what_start_yielded_before_it_raised_is_crawled_then_the_worker_ends_start_error(
    store_path, origin, caplog
):
    class Raises(Starts):
        async def start(self):
            for n in range(3):
                yield Request(f"{origin}/ok?{n}", callback=self.page)
            raise RuntimeError("the list is broken")

    crawled = await crawl(store_path, Raises)
    assert crawled.outcomes == {"done": 3}
    assert end_reason(store_path) == "start_error"
    assert "start() failed with RuntimeError" in caplog.text


@crawl_test
async def test_close_spider_in_start_closes_the_spider_for_its_reason(store_path, origin, caplog):
    class Enough(Starts):
        async def start(self):
            yield Request(f"{origin}/ok?0", callback=self.page)
            raise CloseSpider("enough")

    work = [f"{origin}/slow?t=0.2&{n}" for n in range(50)]
    crawled = await crawl(store_path, Enough, work, {"HEXSHARD_MAX_UNITS": 2})
    assert crawled.reason == "enough"
    assert end_reason(store_path) == "enough"
    assert crawled.counts["pending"] > 40
    assert "start() failed" not in caplog.text


@crawl_test
async def test_items_of_start_are_read_no_faster_than_they_are_taken(store_path):
    class Items(Starts):
        most = 0

        async def start(self):
            for n in range(4000):
                taken = self.crawler.stats.get_value("item_scraped_count", 0)
                self.most = max(self.most, n - taken)
                yield {"n": n}

    crawled = await crawl(store_path, Items)
    assert crawled.stat("item_scraped_count") == 4000
    assert crawled.crawler.spider.most < 2000


class TakeThree:
    async def process_start(self, start: Any) -> Any:
        taken = 0
        async for each in start:
            yield each
            taken += 1
            if taken == 3:
                return


@crawl_test
async def test_a_worker_whose_feeding_a_middleware_ends_is_not_finished(store_path, origin, caplog):
    settings = {"SPIDER_MIDDLEWARES": {TakeThree: 500}}
    work = [f"{origin}/ok?{n}" for n in range(20)]
    crawled = await crawl(store_path, Starts, work, settings)
    assert crawled.counts["pending"] >= 17
    assert end_reason(store_path) == "unfinished"
    assert "Something ended the feeding of this worker" in caplog.text


def end_reason(path: Any) -> str:
    """Why the last worker says it ended."""
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(path)) as db:
        [reason] = db.execute("SELECT reason FROM workers ORDER BY id DESC LIMIT 1").fetchone()
    return reason


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 64])
@crawl_test
async def test_a_start_that_never_pauses_does_not_hold_up_the_crawl(store_path, origin, shards):
    gaps: list[float] = []

    class Many(Starts):
        pages_meanwhile = 0
        yielded = 0
        through = False
        last = 0.0

        async def start(self):
            # In CPU seconds of the loop's own thread: others on the machine do not count.
            self.last = thread_time()
            self.tick()
            while self.yielded < 100_000 or self.held_up():
                yield Request(f"{origin}/ok?{self.yielded}", callback=self.page)
                type(self).yielded += 1
            type(self).through = True

        def held_up(self):
            # How many pages fit into 100,000 requests is the machine's business, but some must.
            return self.pages_meanwhile <= 10 and self.yielded < 1_000_000

        def tick(self):
            now = thread_time()
            gaps.append(now - self.last)
            self.last = now
            if not self.through:
                call_later(0.005, self.tick)

        def page(self, response):
            if not self.through:
                type(self).pages_meanwhile += 1
            elif self.stat("hexshard/start_keys") + self.stat("hexshard/unowned") == self.yielded:
                raise CloseSpider("enough")  # the last of them are stored, too

    settings = {"DOWNLOAD_DELAY": 0.05, "HEXSHARD_MAX_UNITS": 4}
    crawled = await crawl(store_path, Many, settings=settings, shard="0", shards=str(shards))
    print(f"largest gap {max(gaps):.3f} s, {Many.pages_meanwhile} pages meanwhile")
    assert crawled.reason == "enough"
    assert sum(crawled.counts.values()) == crawled.stat("hexshard/start_keys")
    assert crawled.stat("hexshard/start_keys") + crawled.stat("hexshard/unowned") == Many.yielded
    assert "running" not in crawled.counts
    assert Many.pages_meanwhile > 10
    assert max(gaps) < 0.3


@crawl_test
async def test_a_payload_of_the_users_own_gives_way_to_the_request_of_start(store_path, origin):
    class Calls(Starts):
        async def start(self):
            await nap(0.3)
            yield Request(f"{origin}/ok?0", callback=self.page)

    work = [Work(f"{origin}/ok?0", json.dumps({"sku": 1}))]
    crawled = await crawl(store_path, Calls, work)
    assert crawled.items == [{"page": "0"}]


@crawl_test
async def test_a_start_request_the_spider_middlewares_drop_is_not_stored(store_path, origin):
    class DropOdd:
        async def process_start(self, start):
            async for each in start:
                if int(each.url.rsplit("?", 1)[1]) % 2 == 0:
                    yield each

    class All(Starts):
        async def start(self):
            for n in range(6):
                yield Request(f"{origin}/ok?{n}", callback=self.page)

    # Nearer the spider than the feed, so that it sees what start() yields.
    crawled = await crawl(store_path, All, settings={"SPIDER_MIDDLEWARES": {DropOdd: 1100}})
    assert crawled.outcomes == {"done": 3}


@crawl_test
async def test_an_invalid_start_output_is_not_taken_for_a_request(store_path, origin):
    class Odd(Never):
        async def start(self):
            yield "no request"

    crawled = await crawl(store_path, Odd)
    assert crawled.counts == {}
