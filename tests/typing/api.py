"""Code as users write it. It is never run: it only has to pass ``mypy --strict``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, assert_type

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response

from scrapy_hexshard import (
    Claim,
    Config,
    HexShardAddon,
    HexShardError,
    InvalidKeyError,
    LaunchError,
    PayloadError,
    RetryPolicy,
    SettingError,
    Settlement,
    ShardError,
    ShardSpec,
    SQLiteWorkStore,
    StoreError,
    StoreMismatchError,
    StoreUnavailableError,
    UnownedRequest,
    UnsupportedScrapyError,
    Work,
    WorkStore,
    assigned_indices,
    canonical_key,
    legacy_rowid_owner,
    open_store,
    request_key,
    stable_owner,
)


def fetch_product(key: str) -> dict[str, Any]:
    return {"url": key}


def the_short_form(product_urls: Iterable[str]) -> None:
    store = SQLiteWorkStore("crawl.sqlite3", ShardSpec(index=0, count=4))
    store.enqueue(product_urls)
    for key in store.claim(limit=100, lease_seconds=1800):
        try:
            fetch_product(key)
        except Exception as exc:
            store.fail(key, str(exc))
        else:
            store.complete(key)


def batches(store: WorkStore) -> int:
    with store:
        new = store.enqueue(["http://shop.example/1", Work("sku-2", payload="{}", priority=5)])
        assert_type(new, int)
        claims = store.claim(10)
        assert_type(claims, list[Claim])
        held = store.renew(claims, lease_seconds=60)
        with store.group():
            settled = store.settle(
                Settlement.complete(claim, items=['{"a": 1}'], discovered=[str(claim), Work("b")])
                for claim in held
            )
            store.release(*settled.stale)
            store.fail(claims[0], "http 404", permanent=True)
            store.settle([Settlement.fail(claims[1], "late", retry_in=1.5)])
        assert_type(store.complete(*claims), bool)
        left = store.open_work()
        assert_type(left.next_in, float | None)
        for item in store.items():
            print(item)
        counts: Mapping[str, int] = {str(state): n for state, n in store.counts().items()}
        return sum(counts.values()) + len(store.shard_counts()) + len(store.outcomes())


def claims_are_text(claim: Claim) -> str:
    assert_type(claim.attempt, int)
    assert_type(claim.payload, str | None)
    return claim.upper() + str(claim.token)


def shards() -> Iterator[str]:
    spec = ShardSpec.parse("2/4")
    spec = ShardSpec.from_env({"CRAWL_SHARD": "2", "CRAWL_SHARDS": "4"})
    assert_type(spec.owns("sku-1"), bool)
    assert_type(spec.legacy_owns_rowid(7), bool)
    assert_type(stable_owner("sku-1", 4), int)
    assert_type(legacy_rowid_owner(7, 4), int)
    assert_type(assigned_indices(1000, spec), range)
    yield canonical_key("HTTP://Shop.Example/1")
    yield request_key("POST", "http://shop.example/search", b"q=1")


def stores(url: str, spec: ShardSpec) -> None:
    open_store(url).close()
    open_store(url, 4, policy=RetryPolicy(max_attempts=5, delay=0.5)).close()
    open_store(url, spec).close()
    SQLiteWorkStore(url, spec, policy=RetryPolicy()).close()


def settings() -> Config:
    config = Config.read({"HEXSHARD_STORE": "crawl.sqlite3"}, {"shard": "0/1"})
    assert_type(config.shard, ShardSpec)
    return config


def errors(error: HexShardError) -> str:
    if isinstance(error, InvalidKeyError | ShardError | SettingError | PayloadError):
        as_value_error: ValueError = error
        return str(as_value_error)
    if isinstance(error, StoreMismatchError | StoreUnavailableError):
        as_store_error: StoreError = error
        return str(as_store_error)
    if isinstance(error, LaunchError):
        assert_type(error.exit_code, int)
    return "Scrapy" if isinstance(error, UnsupportedScrapyError) else "other"


class ProductSpider(scrapy.Spider):
    name = "products"

    def request_for_key(self, key: str, payload: str | None) -> scrapy.Request:
        return scrapy.Request(key, meta={"payload": payload}, errback=self.on_error)

    def parse(self, response: Response, **kwargs: Any) -> Iterator[dict[str, Any]]:
        yield {**kwargs, "url": response.url}

    def on_error(self, failure: Any) -> None:
        if failure.check(UnownedRequest):
            self.logger.info("Another shard's.")


def crawl() -> None:
    process = CrawlerProcess({"ADDONS": {HexShardAddon: 300}, "HEXSHARD_STORE": "crawl.sqlite3"})
    process.crawl(ProductSpider, shard="0", shards="4")
    process.start()
