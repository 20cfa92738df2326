"""Crawls in this process, under whichever event loop the test run has chosen."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scrapy import Spider
from scrapy.crawler import Crawler

from scrapy_hexshard import ShardSpec, SQLiteWorkStore, Work

# Set by the run that has no Twisted reactor at all; see test_event_loops.py.
REACTORLESS = os.environ.get("HEXSHARD_TEST_REACTORLESS") == "1"
PATIENCE = 60.0

SETTINGS: dict[str, Any] = {
    "ADDONS": {"scrapy_hexshard.HexShardAddon": 300},
    "LOG_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
    "RETRY_TIMES": 1,
    "DOWNLOAD_TIMEOUT": 10,
    # One attempt, so that a failure's outcome is final.
    "HEXSHARD_MAX_ATTEMPTS": 1,
    "HEXSHARD_RETRY_DELAY": 0.05,
}


def crawl_test(test: Callable[..., Awaitable[None]]) -> Callable[..., Any]:
    """Run an async test under the event loop of this run."""

    @functools.wraps(test)
    def reactorless(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(_awaited(test(*args, **kwargs)), 2 * PATIENCE))

    if REACTORLESS:
        return reactorless
    import pytest_twisted

    return pytest_twisted.ensureDeferred(test)


async def _awaited(test: Awaitable[None]) -> None:
    await test


@dataclass
class Crawl:
    """What a crawl left behind."""

    crawler: Crawler
    path: Path

    def open(self, shard: str = "0/1") -> SQLiteWorkStore:
        return SQLiteWorkStore(str(self.path), ShardSpec.parse(shard))

    @property
    def outcomes(self) -> dict[str, int]:
        with SQLiteWorkStore(str(self.path), None, readonly=True) as store:
            return {name: count for name, count in store.outcomes().items() if count}

    @property
    def counts(self) -> dict[str, int]:
        with SQLiteWorkStore(str(self.path), None, readonly=True) as store:
            counts = store.counts(all_shards=True)
            return {str(state): count for state, count in counts.items() if count}

    @property
    def items(self) -> list[Any]:
        with SQLiteWorkStore(str(self.path), None, readonly=True) as store:
            return list(store.items())

    def stat(self, name: str, default: Any = 0) -> Any:
        return self.crawler.stats.get_value(name, default)

    @property
    def reason(self) -> str:
        return self.crawler.stats.get_value("finish_reason")


async def crawl(
    path: Path,
    spider: type[Spider],
    keys: Iterable[str | Work] = (),
    settings: dict[str, Any] | None = None,
    **arguments: Any,
) -> Crawl:
    """Enqueue *keys* in the store at *path* and crawl them to the end with *spider*."""
    shards = int(arguments.get("shards", 1))
    with SQLiteWorkStore(str(path), ShardSpec(0, shards)) as store:
        store.enqueue(keys)
    stored = {"HEXSHARD_STORE": str(path), "HEXSHARD_ITEMS": True}
    crawler = await run(spider, {**stored, **(settings or {})}, **arguments)
    return Crawl(crawler, path)


async def run(spider: type[Spider], settings: dict[str, Any], **arguments: Any) -> Crawler:
    """Crawl to the end with *settings* on top of those of every test."""
    settings = {**SETTINGS, **settings}
    if REACTORLESS:
        from scrapy.crawler import AsyncCrawlerRunner

        runner = AsyncCrawlerRunner({**settings, "TWISTED_REACTOR_ENABLED": False})
        crawler = runner.create_crawler(spider)
        await asyncio.wait_for(runner.crawl(crawler, **arguments), PATIENCE)
        return crawler
    from scrapy.crawler import CrawlerRunner
    from scrapy.utils.reactor import is_asyncio_reactor_installed
    from twisted.internet import reactor

    if not is_asyncio_reactor_installed():
        settings["TWISTED_REACTOR"] = None
    twisted_runner = CrawlerRunner(settings)
    crawler = twisted_runner.create_crawler(spider)
    done = twisted_runner.crawl(crawler, **arguments)
    done.addTimeout(PATIENCE, reactor)
    await done
    return crawler


async def together(*crawls: Coroutine[Any, Any, Any]) -> list[Any]:
    """The results of crawls that run side by side."""
    if REACTORLESS:
        return await asyncio.gather(*crawls)
    from twisted.internet.defer import Deferred

    started = [Deferred.fromCoroutine(each) for each in crawls]
    return [await each for each in started]


async def later(seconds: float, crawl: Coroutine[Any, Any, Any]) -> Any:
    """The result of *crawl*, which begins after so many seconds."""
    if REACTORLESS:
        await asyncio.sleep(seconds)
    else:
        from twisted.internet import reactor
        from twisted.internet.task import deferLater

        await deferLater(reactor, seconds)
    return await crawl
