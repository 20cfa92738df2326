"""The components listed in settings.py one by one make the same crawl as the add-on."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from scrapy import Request
from support.crawling import Crawl, crawl, crawl_test, run
from support.spiders import Plain

from scrapy_hexshard import stable_owner
from scrapy_hexshard.components.addon import COMPONENTS
from scrapy_hexshard.components.engine_tap import check_scrapy
from scrapy_hexshard.errors import SettingError, ShardError, UnsupportedScrapyError

ONE_BY_ONE: dict[str, Any] = {
    "ADDONS": {},
    "EXTENSIONS": {"scrapy_hexshard.components.worker.WorkerExtension": 0},
    "SPIDER_MIDDLEWARES": {
        "scrapy_hexshard.components.feeder.DropMiddleware": 1040,
        "scrapy_hexshard.components.feeder.FeederMiddleware": 1050,
    },
    "DOWNLOADER_MIDDLEWARES": {
        "scrapy_hexshard.components.shard_middleware.ShardMiddleware": 25,
        "scrapy_hexshard.components.proxy_middleware.ProxyMiddleware": 950,
    },
    "DUPEFILTER_CLASS": "scrapy_hexshard.components.dupefilter.UnitDupeFilter",
    "FEED_URI_PARAMS": "scrapy_hexshard.components.feed_params.with_shard",
}


def owned(form: str, shard: int, count: int) -> list[str]:
    """The first URLs of that form that *shard* of 2 owns."""
    urls = (form.format(n=n) for n in range(999))
    return list(islice((url for url in urls if stable_owner(url, 2) == shard), count))


class Shop(Plain):
    """Every product asks one price API; one product is missing, one page is broken."""

    async def start(self) -> Any:
        for shard in (0, 1):
            for page in owned(self.origin + "/ok?p={n}", shard, 4):
                yield Request(page, callback=self.product)
        yield Request(owned(self.origin + "/status/404?p={n}", 0, 1)[0], callback=self.product)

    def product(self, response: Any) -> Any:
        if response.url == owned(self.origin + "/ok?p={n}", 0, 4)[3]:
            raise ValueError("broken")
        for shard in (0, 1):
            api = owned(self.origin + "/ok?price={n}", shard, 1)[0]
            yield Request(api, callback=self.price, meta={"of": response.url})

    def price(self, response: Any) -> Any:
        yield {"of": response.meta["of"]}


def what_came_of(crawled: Crawl) -> dict[str, Any]:
    stats = crawled.crawler.stats.get_stats()
    return {
        "outcomes": crawled.outcomes,
        "counts": crawled.counts,
        "items": sorted(item["of"] for item in crawled.items),
        "stats": {
            name: value
            for name, value in stats.items()
            if name.startswith("hexshard/") and "seconds" not in name
        },
        "requests": stats["downloader/request_count"],
        "reason": crawled.reason,
    }


@pytest.mark.parametrize("follow", ["unit", "drop"])
@crawl_test
async def test_one_by_one_and_the_add_on_make_the_same_crawl(tmp_path, origin, follow):
    results = []
    for name, base in {"one by one": ONE_BY_ONE, "add-on": {}}.items():
        spider = type("Mine", (Shop,), {"origin": origin})
        settings = {**base, "HEXSHARD_FOLLOW": follow, "CONCURRENT_REQUESTS": 1}
        path = tmp_path / f"{name}.sqlite3"
        crawled = await crawl(path, spider, [], settings, shard="0", shards="2")
        results.append(what_came_of(crawled))
    assert results[0] == results[1]
    # Under drop, one duplicate filter serves all keys and the API of another shard is left out.
    outcomes = {"done": 3} if follow == "unit" else {"done": 1, "empty": 2}
    assert results[0]["outcomes"] == {**outcomes, "http 404": 1, "spider: ValueError": 1}
    assert len(results[0]["items"]) == (6 if follow == "unit" else 1)


def test_the_orders_are_those_of_the_add_on():
    for setting, component, order in COMPONENTS:
        name = f"{component.__module__}.{component.__qualname__}"
        assert name in ONE_BY_ONE.get(setting, {}), f"{name} is not in this test"
        assert ONE_BY_ONE[setting][name] == order


@crawl_test
async def test_the_users_own_place_for_a_component_stays(store_path, origin):
    from scrapy_hexshard.components.shard_middleware import ShardMiddleware

    settings = {"DOWNLOADER_MIDDLEWARES": {ShardMiddleware: 901}}
    crawled = await crawl(store_path, Plain, [f"{origin}/ok"], settings)
    assert crawled.outcomes == {"done": 1}
    placed = crawled.crawler.settings["DOWNLOADER_MIDDLEWARES"]
    assert {order for cls, order in placed.items() if cls is ShardMiddleware} == {901}


REFUSED = {
    "shard": ({}, {"shard": "4/4"}, ShardError),
    "setting": ({"HEXSHARD_LEASE_SECONDS": "x"}, {}, SettingError),
    "JOBDIR": ({"JOBDIR": "job"}, {}, SettingError),
}


@pytest.mark.parametrize("base", [{}, ONE_BY_ONE], ids=["add-on", "one by one"])
@pytest.mark.parametrize("case", REFUSED)
@crawl_test
async def test_what_is_refused_is_refused_either_way(store_path, base, case):
    settings, arguments, error = REFUSED[case]
    with pytest.raises(error):
        await run(Plain, {**base, **settings, "HEXSHARD_STORE": str(store_path)}, **arguments)
    assert not store_path.exists()


@pytest.mark.parametrize(
    ("owner", "method"),
    [
        ("scrapy.core.engine.ExecutionEngine", "_handle_downloader_output"),
        ("scrapy.core.scraper.Scraper", "call_spider_async"),
        ("scrapy.core.scraper.Scraper", "handle_spider_output_async"),
        ("scrapy.core.scraper.Scraper", "handle_spider_error"),
    ],
)
@pytest.mark.parametrize("change", ["gone", "other arguments"])
def test_a_scrapy_with_other_insides_is_refused(monkeypatch, owner, method, change):
    from scrapy.utils.misc import load_object

    check_scrapy()
    if change == "gone":
        monkeypatch.delattr(load_object(owner), method)
    else:
        monkeypatch.setattr(load_object(owner), method, lambda self, other: None)
    with pytest.raises(UnsupportedScrapyError, match=f"has no .*{method}"):
        check_scrapy()
