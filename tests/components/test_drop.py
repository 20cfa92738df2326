"""Sharding with no store: what another shard owns is dropped, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import FormRequest, Request
from scrapy.pipelines.files import FilesPipeline
from support.crawling import crawl_test, run
from support.spiders import Plain

from scrapy_hexshard import stable_owner

ALONE = {
    "ADDONS": {},
    "DOWNLOADER_MIDDLEWARES": {"scrapy_hexshard.components.shard_middleware.ShardMiddleware": 25},
}
ADDON: dict[str, Any] = {}
either = pytest.mark.parametrize("settings", [ADDON, ALONE], ids=["add-on", "middleware alone"])


def starts_of(origin: str) -> list[str]:
    """Two start pages for each of 3 shards."""
    urls = [f"{origin}/ok?s={n}" for n in range(99)]
    return [
        url
        for shard in range(3)
        for url in [url for url in urls if stable_owner(url, 3) == shard][:2]
    ]


class Tree(Plain):
    """Start pages, each with follow-ups; remembers what it was given."""

    origin = ""

    async def start(self) -> Any:
        for url in starts_of(self.origin):
            yield Request(url, dont_filter=True)

    def parse(self, response: Any) -> Any:
        self.seen.append(response.url)
        if "s=" in response.url:
            for n in range(8):
                yield self.follow(response, f"/ok?f={n}")
        yield {"url": response.url}


def tree(origin_: str) -> type[Tree]:
    class Mine(Tree):
        origin = origin_
        seen: list[str] = []  # noqa: RUF012

    return Mine


@either
@crawl_test
async def test_the_workers_together_request_everything_exactly_once(origin, settings):
    every = starts_of(origin) + [f"{origin}/ok?f={n}" for n in range(8)]
    union: list[str] = []
    for shard in range(3):
        spider = tree(origin)
        crawler = await run(spider, settings, shard=str(shard), shards="3")
        assert all(stable_owner(url, 3) == shard for url in spider.seen)
        assert crawler.stats.get_value("downloader/request_count") == len(spider.seen)
        assert crawler.stats.get_value("hexshard/unowned") > 0
        assert crawler.stats.get_value("finish_reason") == "finished"
        union += spider.seen
    # Every worker owns a start page here, so each sees the links to its follow-ups.
    assert sorted(union) == sorted(every)


@either
@crawl_test
async def test_a_post_that_is_redirected_stays_with_the_shard_that_sent_it(origin, settings):
    class Posts(Plain):
        seen: list[str] = []  # noqa: RUF012

        async def start(self) -> Any:
            for n in range(12):
                to = f"{origin}/redirect?u=/ok?{n}"
                yield FormRequest(to, formdata={"n": str(n)}, dont_filter=True)

        def parse(self, response: Any) -> Any:
            self.seen.append(response.url)

    for shard in range(3):
        await run(Posts, settings, shard=str(shard), shards="3")
    assert sorted(Posts.seen) == sorted(f"{origin}/ok?{n}" for n in range(12))


@crawl_test
async def test_a_link_with_the_meta_of_a_redirected_page_is_judged_by_its_own_url(origin):
    class Moved(Plain):
        seen: list[str] = []  # noqa: RUF012

        async def start(self) -> Any:
            for n in range(30):
                yield Request(f"{origin}/redirect?u=/ok?s={n}", dont_filter=True)

        def parse(self, response: Any) -> Any:
            if "f=" in response.url:
                self.seen.append(response.url)
            elif "again" not in response.meta:
                yield response.request.replace(meta={**response.meta, "again": 1}, dont_filter=True)
            else:
                for n in range(8):
                    yield self.follow(response, f"/ok?f={n}", meta=response.meta)

    for shard in range(3):
        await run(Moved, {}, shard=str(shard), shards="3")
    assert sorted(Moved.seen) == [f"{origin}/ok?f={n}" for n in range(8)]


@crawl_test
async def test_dropping_early_leaves_the_duplicate_filter_and_the_errback_alone(origin):
    class Fans(tree(origin)):  # type: ignore[misc]
        failures = 0

        def parse(self, response):
            for n in range(20):
                yield self.follow(response, f"/ok?f={n}", callback=self.leaf, errback=self.failed)

        def leaf(self, response):
            return None

        def failed(self, failure):
            type(self).failures += 1

    crawler = await run(Fans, {}, shard="0/4")
    assert Fans.failures == 0
    assert crawler.stats.get_value("downloader/exception_count") is None


@crawl_test
async def test_one_worker_of_one_drops_nothing(origin):
    spider = tree(origin)
    crawler = await run(spider, {})
    assert len(spider.seen) == 14
    assert crawler.stats.get_value("hexshard/unowned") is None


def url_of(origin: str, shard: int, form: str) -> str:
    """A URL that *shard* of 2 owns."""
    return next(
        url for n in range(99) if stable_owner(url := origin + form.format(n=n), 2) == shard
    )


@either
@crawl_test
async def test_a_redirect_to_what_another_shard_owns_keeps_its_key(origin, settings):
    target = url_of(origin, 1, "/ok?t={n}").removeprefix(origin)

    class Redirected(tree(origin)):  # type: ignore[misc]
        async def start(self):
            yield Request(url_of(origin, 0, f"/redirect?u={target}" + "&n={n}"))

    await run(Redirected, settings, shard="0/2")
    assert Redirected.seen[0] == origin + target


@either
@crawl_test
async def test_robots_media_and_inline_downloads_pass_whoever_owns_them(origin, settings, tmp_path):
    inline = url_of(origin, 1, "/ok?inline={n}")
    image = url_of(origin, 1, "/image?{n}")
    page = url_of(origin, 0, "/ok?page={n}")

    class Passes(tree(origin)):  # type: ignore[misc]
        async def start(self):
            yield Request(page)

        async def parse(self, response):
            inner = await self.crawler.engine.download_async(Request(inline))
            self.seen.append(inner.url)
            yield {"file_urls": [image], "files": []}

    more = {
        "ROBOTSTXT_OBEY": True,
        "ITEM_PIPELINES": {FilesPipeline: 1},
        "FILES_STORE": str(tmp_path),
    }
    crawler = await run(Passes, {**settings, **more}, shard="0/2")
    assert Passes.seen == [inline]
    assert len(list(tmp_path.glob("full/*"))) == 1
    assert crawler.stats.get_value("robotstxt/request_count") == 1
    assert crawler.stats.get_value("hexshard/unowned") is None


@crawl_test
async def test_items_of_start_pass_in_every_worker(origin):
    class Items(tree(origin)):  # type: ignore[misc]
        async def start(self):
            yield {"n": 1}

    for shard in ("0/2", "1/2"):
        crawler = await run(Items, {}, shard=shard)
        assert crawler.stats.get_value("item_scraped_count") == 1


@either
@crawl_test
async def test_nothing_is_dropped_where_sharding_is_switched_off(origin, settings):
    spider = tree(origin)
    off = {**settings, "HEXSHARD_ENABLED": False}
    await run(spider, off, shard="0", shards="4")
    assert len(spider.seen) == 14
