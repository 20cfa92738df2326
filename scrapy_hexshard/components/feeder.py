"""The spider middlewares that feed a shard's keys and drop what other shards own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.exceptions import NotConfigured

from scrapy_hexshard.components.feed import Feed
from scrapy_hexshard.components.ownership import Ownership
from scrapy_hexshard.components.request_codec import SHARD_KEY, set_out
from scrapy_hexshard.components.work import feeds_from_store
from scrapy_hexshard.components.worker import WorkerExtension

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler


def _worker_of(crawler: Crawler) -> WorkerExtension:
    worker = crawler.get_extension(WorkerExtension)
    if worker is None:
        raise NotConfigured("WorkerExtension is not in EXTENSIONS")
    if crawler.spider is None or not feeds_from_store(crawler.spider):
        raise NotConfigured  # a command such as scrapy fetch: it brings its own requests
    return worker


class FeederMiddleware:
    """Puts the keys of the store in the place of the spider's start requests."""

    def __init__(self, crawler: Crawler, worker: WorkerExtension) -> None:
        if worker.work is None:
            raise NotConfigured
        self._feed = Feed(worker.work, crawler)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler, _worker_of(crawler))

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The requests of this shard's keys."""
        async for each in self._feed.requests(start):
            yield each


class DropMiddleware:
    """Drops the requests of other shards early: with no store, or ``HEXSHARD_FOLLOW = "drop"``.

    It costs a tenth of what the shard middleware does, and does not reach the duplicate filter.
    """

    def __init__(self, crawler: Crawler, worker: WorkerExtension) -> None:
        self._drops_starts = worker.work is None
        if not self._drops_starts and worker.config.follow != "drop":
            raise NotConfigured
        self._ownership = Ownership(crawler, worker.config.shard)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler, _worker_of(crawler))

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The start requests this shard owns, and the items."""
        async for each in start:
            if not self._drops_starts or self._is_kept(each):
                yield each

    async def process_spider_output(
        self,
        response: Any,
        result: AsyncIterator[Any],
    ) -> AsyncIterator[Any]:
        """The follow-ups this shard owns, and the items."""
        async for each in result:
            if self._is_follow_up_kept(each, response.url):
                yield each

    def _is_follow_up_kept(self, output: Any, found_on: str) -> bool:
        if not isinstance(output, Request):
            return True
        if not self._drops_starts and output.meta.get(SHARD_KEY) is not None:
            return True  # it becomes a key, whoever owns it
        if "redirect_urls" in output.meta:
            if output.url == found_on:
                return True  # the page once more, which was led here from one that is owned
            set_out(output)
        return self._ownership.holds(output)

    def _is_kept(self, output: Any) -> bool:
        return not isinstance(output, Request) or self._ownership.holds(output)
