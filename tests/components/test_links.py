"""Links that become keys: stored with the page that found them, worked on by whoever owns them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from scrapy import FormRequest, Request
from scrapy.http import JsonRequest
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule
from support.crawling import Crawl, crawl, crawl_test, later, run, together
from support.spiders import Plain, nap

from scrapy_hexshard import ShardSpec, SQLiteWorkStore, Work, stable_owner
from scrapy_hexshard.components.request_codec import LIVE_PAYLOAD

PAGES = 30
BY_KEY = {"HEXSHARD_FOLLOW": "key", "HEXSHARD_MAX_ATTEMPTS": 2}


def site(origin_: str) -> type[Plain]:
    """A site whose page n links to the pages 2n+1 and 2n+2, to the first one and to itself."""

    class Site(Plain):
        origin = origin_
        visits: Counter[int]

        async def start(self) -> Any:
            yield Request(f"{self.origin}/ok?0")

        def parse(self, response: Any) -> Any:
            number = int(response.url.rpartition("?")[2])
            self.visits[number] += 1
            for to in (2 * number + 1, 2 * number + 2, 0, number):
                if to < PAGES:
                    yield self.follow(response, f"/ok?{to}")
            yield {"page": number}

    Site.visits = Counter()
    return Site


def worker(path: Any, spider: type[Plain], shard: int, shards: int, **settings: Any) -> Any:
    stored = {"HEXSHARD_STORE": str(path), "HEXSHARD_ITEMS": True, **BY_KEY}
    return run(spider, {**stored, **settings}, shard=str(shard), shards=str(shards))


def reason(crawler: Any, path: Any) -> str:
    """Why the worker says it ended, which only the store has."""
    import sqlite3
    from contextlib import closing

    shard = crawler.stats.get_value("hexshard/shard")
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT reason FROM workers WHERE shard = ? ORDER BY id", (shard,))
        return rows.fetchall()[-1][0]


@crawl_test
async def test_each_page_is_a_key_and_visited_once(store_path, origin):
    spider = site(origin)
    crawled = await crawl(store_path, spider, settings=BY_KEY)
    assert spider.visits == Counter(range(PAGES))
    assert crawled.counts == {"done": PAGES}
    assert sorted(item["page"] for item in crawled.items) == list(range(PAGES))
    assert crawled.stat("hexshard/links") >= PAGES - 1
    assert crawled.stat("hexshard/links_kept") == 0


@crawl_test
async def test_workers_of_all_shards_visit_each_page_once_between_them(store_path, origin):
    spider = site(origin)
    crawlers = await together(*(worker(store_path, spider, shard, 3) for shard in range(3)))
    assert spider.visits == Counter(range(PAGES))
    assert Crawl(crawlers[0], store_path).counts == {"done": PAGES}
    assert [reason(each, store_path) for each in crawlers] == ["finished"] * 3


@crawl_test
async def test_a_failed_attempt_leaves_no_link(store_path, origin):
    class Fails(Plain):
        def parse(self, response: Any) -> Any:
            yield self.follow(response, "/ok?found")
            raise KeyError("late")

    crawled = await crawl(store_path, Fails, [f"{origin}/ok?0"], BY_KEY)
    assert crawled.outcomes == {"spider: KeyError": 1}
    assert crawled.counts == {"dead": 1}


@crawl_test
async def test_what_has_failed_once_stores_its_links_once_it_is_done(store_path, origin):
    class FailsOnce(Plain):
        failed = False

        def parse(self, response: Any) -> Any:
            yield self.follow(response, "/ok?found", callback=self.leaf)
            if not self.failed:
                type(self).failed = True
                raise KeyError("once")

        def leaf(self, response: Any) -> Any:
            yield {"url": response.url}

    crawled = await crawl(store_path, FailsOnce, [f"{origin}/ok?0"], BY_KEY)
    assert crawled.counts == {"done": 2}
    assert len(crawled.items) == 1


@crawl_test
async def test_a_link_brings_its_callback_its_arguments_its_depth_and_its_priority(
    store_path, origin
):
    class Deep(Plain):
        order: list[str] = []  # noqa: RUF012

        def parse(self, response: Any) -> Any:
            for number in range(3):
                options = {"callback": self.leaf, "cb_kwargs": {"number": number}}
                yield self.follow(response, f"/ok?{number}", priority=number, **options)

        def leaf(self, response: Any, number: int) -> Any:
            self.order.append(response.url[-1])
            yield {
                "number": number,
                "depth": response.meta["depth"],
                "referer": response.request.headers["Referer"].decode(),
            }

    settings = {**BY_KEY, "HEXSHARD_MAX_UNITS": 1}
    crawled = await crawl(store_path, Deep, [f"{origin}/ok?first"], settings)
    assert Deep.order == ["2", "1", "0"]
    assert sorted((item["number"], item["depth"]) for item in crawled.items) == [
        (0, 1),
        (1, 1),
        (2, 1),
    ]
    assert {item["referer"] for item in crawled.items} == {f"{origin}/ok?first"}


@crawl_test
async def test_too_deep_over_long_and_offsite_links_are_never_stored(store_path, origin):
    class Far(Plain):
        allowed_domains = ["127.0.0.1"]  # noqa: RUF012

        def parse(self, response: Any) -> Any:
            depth = response.meta["depth"]
            yield {"depth": depth}
            yield self.follow(response, f"/ok?deeper={depth}")
            yield self.follow(response, "/ok?" + "x" * 3000)
            yield Request("http://elsewhere.invalid/")

    settings = {**BY_KEY, "DEPTH_LIMIT": 2}
    crawled = await crawl(store_path, Far, [f"{origin}/ok?0"], settings)
    assert sorted(item["depth"] for item in crawled.items) == [0, 1, 2]
    assert crawled.counts == {"done": 3}
    assert crawled.stat("offsite/filtered") == 2  # the third one was too deep already
    assert crawled.stat("hexshard/links_kept") == 0


@crawl_test
async def test_an_offsite_link_that_is_allowed_is_stored(store_path, origin):
    class Far(Plain):
        allowed_domains = ["localhost"]  # noqa: RUF012

        def parse(self, response: Any) -> Any:
            yield {"url": response.url}
            yield self.follow(response, "/ok?1", meta={"allow_offsite": True})

    crawled = await crawl(store_path, Far, [f"{origin}/ok?0"], BY_KEY)
    assert crawled.counts == {"done": 2}


@crawl_test
async def test_a_link_that_takes_the_meta_of_a_redirected_page_along_is_stored(store_path, origin):
    class Moved(Plain):
        def parse(self, response: Any) -> Any:
            yield {"url": response.url, "redirects": response.meta.get("redirect_times", 0)}
            if "first" in response.url:
                yield self.follow(response, "/ok?next", meta=response.meta)

    crawled = await crawl(store_path, Moved, [f"{origin}/redirect?u=/ok?first"], BY_KEY)
    assert sorted(list(item.values()) for item in crawled.items) == [
        [f"{origin}/ok?first", 1],
        [f"{origin}/ok?next", 0],
    ]
    assert crawled.counts == {"done": 2}


@crawl_test
async def test_of_two_links_to_a_page_the_first_one_wins(store_path, origin):
    class Twice(Plain):
        order: list[str] = []  # noqa: RUF012

        def parse(self, response: Any) -> Any:
            yield self.follow(response, "/ok?page", callback=self.page, priority=-1)
            yield self.follow(response, "/ok?other", callback=self.other)

        def other(self, response: Any) -> Any:
            self.order.append("other")
            yield self.follow(response, "/ok?page", callback=self.other, priority=-2)
            yield {"url": response.url}

        def page(self, response: Any) -> Any:
            self.order.append("page")
            yield {"depth": response.meta["depth"]}

    crawled = await crawl(store_path, Twice, [f"{origin}/ok?0"], BY_KEY)
    assert Twice.order == ["other", "page"]
    assert {"depth": 1} in crawled.items
    assert crawled.counts == {"done": 3}


@crawl_test
async def test_a_form_with_a_password_is_never_stored(store_path, origin):
    class Login(Plain):
        def parse(self, response: Any) -> Any:
            form = {"user": "ann", "account[password]": "hunter2"}
            yield FormRequest(f"{origin}/ok?login", formdata=form, callback=self.leaf)
            yield JsonRequest(f"{origin}/ok?api", data={"passwd": "hunter2"}, callback=self.leaf)

        def leaf(self, response: Any) -> Any:
            yield {"url": response.url}

    crawled = await crawl(store_path, Login, [f"{origin}/ok?0"], BY_KEY)
    assert len(crawled.items) == 2
    assert crawled.counts == {"done": 1}
    assert crawled.stat("hexshard/links_kept") == 2


@crawl_test
async def test_a_page_of_links_is_not_empty_where_that_is_a_failure(store_path, origin):
    class Links(Plain):
        def parse(self, response: Any) -> Any:
            if response.url.endswith("0"):
                yield self.follow(response, "/ok?1")

    settings = {**BY_KEY, "HEXSHARD_EMPTY": "fail", "HEXSHARD_MAX_ATTEMPTS": 1}
    crawled = await crawl(store_path, Links, [f"{origin}/ok?0"], settings)
    assert crawled.counts == {"done": 1, "dead": 1}


@crawl_test
async def test_links_keep_their_depth_where_the_spider_builds_the_requests(store_path, origin):
    class Builds(Plain):
        def request_for_key(self, key: str, payload: Any) -> Any:
            assert payload is None
            return Request(key)

        def parse(self, response: Any) -> Any:
            depth = response.meta["depth"]
            yield {"depth": depth}
            yield self.follow(response, f"/ok?{depth + 1}")

    settings = {**BY_KEY, "DEPTH_LIMIT": 2}
    crawled = await crawl(store_path, Builds, [f"{origin}/ok?0"], settings)
    assert sorted(item["depth"] for item in crawled.items) == [0, 1, 2]
    assert crawled.counts == {"done": 3}


@crawl_test
async def test_a_link_that_cannot_be_stored_or_filtered_stays_with_its_page(
    store_path, origin, caplog
):
    class Stubborn(Plain):
        def parse(self, response: Any) -> Any:
            yield self.follow(response, "/ok?1", callback=lambda _: [{"page": 1}])
            yield self.follow(response, "/ok?2", callback=self.leaf, dont_filter=True)
            yield self.follow(response, "/ok?3", callback=self.leaf)

        def leaf(self, response: Any) -> Any:
            yield {"page": int(response.url[-1])}

    crawled = await crawl(store_path, Stubborn, [f"{origin}/ok?0"], BY_KEY)
    assert sorted(item["page"] for item in crawled.items) == [1, 2, 3]
    assert crawled.counts == {"done": 2}
    assert crawled.stat("hexshard/links_kept") == 2
    assert caplog.text.count("stays a request of its page") == 1


@crawl_test
async def test_an_errback_that_finds_a_link_has_handled_the_failure(store_path, origin):
    class Finds(Plain):
        async def start(self) -> Any:
            yield Request(f"{origin}/status/500", errback=self.failed)

        def failed(self, failure: Any) -> Any:
            yield Request(f"{origin}/ok?instead")

    crawled = await crawl(store_path, Finds, settings=BY_KEY)
    assert crawled.counts == {"done": 2}
    assert crawled.items == [{"url": f"{origin}/ok?instead"}]


@crawl_test
async def test_a_page_of_links_alone_is_empty_but_no_failure_of_the_crawl(store_path, origin):
    class Links(Plain):
        def parse(self, response: Any) -> Any:
            yield self.follow(response, "/ok?1", callback=self.leaf)

        def leaf(self, response: Any) -> Any:
            yield {"url": response.url}

    crawled = await crawl(store_path, Links, [f"{origin}/ok?0"], BY_KEY)
    assert crawled.outcomes == {"done": 1, "empty": 1}


@crawl_test
async def test_the_rules_of_a_crawl_spider_make_keys(store_path, origin):
    page = "/page?b=" + "".join(
        f"%3Ca%20href%3D%22{origin.replace(':', '%3A')}/ok%3F{n}%22%3Ex%3C/a%3E" for n in range(4)
    )

    class Ruled(CrawlSpider):
        name = "ruled"
        start_urls = [origin + page]  # noqa: RUF012
        rules = (Rule(LinkExtractor(allow="/ok"), callback="leaf"),)

        def leaf(self, response: Any) -> Any:
            yield {"url": response.url}

    crawled = await crawl(store_path, Ruled, settings=BY_KEY)
    assert crawled.counts == {"done": 5}
    assert len(crawled.items) == 4


@crawl_test
async def test_shard_key_alone_makes_one_request_a_key(store_path, origin):
    class Some(Plain):
        def parse(self, response: Any) -> Any:
            yield self.follow(response, "/ok?own", meta={"shard_key": "product 7"})
            yield self.follow(response, "/ok?part", callback=self.leaf)

        def leaf(self, response: Any) -> Any:
            yield {"url": response.url}

    class Named(Some):
        def parse(self, response: Any) -> Any:
            if response.meta.get("shard_key"):
                # The key came along: what it asks for is part of the work of that key.
                yield self.follow(response, "/ok?more", meta=response.meta, callback=self.leaf)
                return
            yield from super().parse(response)

    crawled = await crawl(store_path, Named, [f"{origin}/ok?0"])
    assert crawled.counts == {"done": 2}
    assert sorted(item["url"].rpartition("?")[2] for item in crawled.items) == ["more", "part"]


def urls_of(origin: str, shard: int, shards: int = 2) -> list[str]:
    """Pages that *shard* owns."""
    return [url for n in range(99) if stable_owner(url := f"{origin}/ok?p={n}", shards) == shard]


@crawl_test
async def test_a_shard_that_nobody_works_is_told_and_the_worker_is_not_finished(
    store_path, origin, caplog
):
    spider = site(origin)
    crawler = await worker(store_path, spider, 0, 3, HEXSHARD_LEASE_SECONDS=1)
    assert reason(crawler, store_path) == "shards_missing"
    missing = sorted({stable_owner(f"{origin}/ok?{n}", 3) for n in spider.visits} | {0})
    assert missing
    assert "No worker is at work on shard " in caplog.text
    # Started all together, they finish.
    crawlers = await together(*(worker(store_path, spider, shard, 3) for shard in range(3)))
    assert [reason(each, store_path) for each in crawlers] == ["finished"] * 3
    assert spider.visits == Counter(range(PAGES))


@crawl_test
async def test_a_worker_waits_for_the_last_page_of_another_shard(store_path, origin):
    mine, theirs = urls_of(origin, 0), urls_of(origin, 1)

    class Late(Plain):
        async def parse(self, response: Any) -> Any:
            if response.url == theirs[0]:
                await nap(3)
                yield self.follow(response, mine[0])
            yield {"url": response.url}

    with SQLiteWorkStore(str(store_path), ShardSpec(0, 2)) as store:
        store.enqueue([theirs[0]])
    settings = {"HEXSHARD_LEASE_SECONDS": 1.5}
    crawlers = await together(*(worker(store_path, Late, n, 2, **settings) for n in range(2)))
    assert Crawl(crawlers[0], store_path).counts == {"done": 2}
    assert [reason(each, store_path) for each in crawlers] == ["finished"] * 2


@crawl_test
async def test_the_owner_of_the_first_page_may_start_last(store_path, origin):
    mine, theirs = urls_of(origin, 0), urls_of(origin, 1)

    class First(Plain):
        async def start(self) -> Any:
            yield Request(theirs[0])

        def parse(self, response: Any) -> Any:
            if response.url == theirs[0]:
                yield self.follow(response, mine[0])
            yield {"url": response.url}

    early = worker(store_path, First, 0, 2, HEXSHARD_LEASE_SECONDS=20)
    crawlers = await together(early, later(2, worker(store_path, First, 1, 2)))
    assert Crawl(crawlers[0], store_path).counts == {"done": 2}
    assert [reason(each, store_path) for each in crawlers] == ["finished"] * 2


@crawl_test
async def test_a_start_request_that_cannot_be_stored_is_a_key_for_its_owner_to_come(
    store_path, origin
):
    mine, theirs = urls_of(origin, 0), urls_of(origin, 1)

    class Cookie(Plain):
        async def start(self) -> Any:
            yield Request(theirs[0], cookies={"currency": "EUR"})

        def parse(self, response: Any) -> Any:
            if response.url == theirs[0]:
                yield self.follow(response, mine[0])
            yield {"url": response.url}

    early = worker(store_path, Cookie, 0, 2, HEXSHARD_LEASE_SECONDS=20)
    crawlers = await together(early, later(2, worker(store_path, Cookie, 1, 2)))
    assert Crawl(crawlers[0], store_path).counts == {"done": 2}
    assert [reason(each, store_path) for each in crawlers] == ["finished"] * 2


@crawl_test
async def test_shards_that_wait_for_start_requests_do_not_wait_for_each_other(store_path, origin):
    with SQLiteWorkStore(str(store_path), ShardSpec(0, 2)) as store:
        store.enqueue(Work(urls_of(origin, shard)[0], LIVE_PAYLOAD) for shard in range(2))
    crawlers = await together(*(worker(store_path, Plain, n, 2) for n in range(2)))
    assert Crawl(crawlers[0], store_path).counts == {"pending": 2}
    assert [reason(each, store_path) for each in crawlers] == ["unfinished"] * 2


@crawl_test
async def test_a_shard_key_makes_a_key_where_other_links_are_dropped(store_path, origin):
    class Named(Plain):
        def parse(self, response: Any) -> Any:
            yield {"url": response.url}
            if "found" not in response.url:
                found = response.url.replace("p=", "found=")
                yield Request(found, meta={"shard_key": found})

    with SQLiteWorkStore(str(store_path), ShardSpec(0, 2)) as store:
        store.enqueue(urls_of(origin, 0)[:8])
    settings = {"HEXSHARD_FOLLOW": "drop", "HEXSHARD_LEASE_SECONDS": 1}
    crawlers = [await worker(store_path, Named, n, 2, **settings) for n in range(2)]
    assert Crawl(crawlers[0], store_path).counts == {"done": 16}


@pytest.mark.parametrize("follow", ["unit", "drop"])
@crawl_test
async def test_otherwise_no_other_shard_is_waited_for(store_path, origin, follow):
    theirs = urls_of(origin, 1)
    with SQLiteWorkStore(str(store_path), ShardSpec(0, 2)) as store:
        store.enqueue([theirs[0], urls_of(origin, 0)[0]])
    crawler = await worker(store_path, Plain, 0, 2, HEXSHARD_FOLLOW=follow)
    assert reason(crawler, store_path) == "finished"
    assert Crawl(crawler, store_path).counts == {"done": 1, "pending": 1}
