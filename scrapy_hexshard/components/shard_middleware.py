"""The net that keeps a worker from requesting what is not its to request."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

from scrapy import signals
from scrapy.exceptions import NotConfigured

from scrapy_hexshard.components.exceptions import StaleRequest, UnownedRequest
from scrapy_hexshard.components.ownership import Ownership
from scrapy_hexshard.components.request_codec import TOKEN
from scrapy_hexshard.components.sentences import in_a_sentence
from scrapy_hexshard.components.work import feeds_from_store
from scrapy_hexshard.components.worker import WorkerExtension
from scrapy_hexshard.config import Config

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler

    from scrapy_hexshard.components.work import Work
    from scrapy_hexshard.sharding import ShardSpec


class ShardMiddleware:
    """Drops scheduled requests of other shards, and those of attempts that have ended.

    What was never scheduled (robots.txt, media, a download within a callback) has no key and
    passes, and so does every request of an open unit, wherever it leads. It works by itself, with
    no other component of this package and no store, too.
    """

    def __init__(self, crawler: Crawler, shard: ShardSpec, work: Work | None) -> None:
        self._work = work
        self._ownership = Ownership(crawler, shard)
        self._scheduled: WeakSet[Request] = WeakSet()
        self._stats = crawler.stats
        crawler.signals.connect(self._request_scheduled, signal=signals.request_scheduled)

    @classmethod
    @in_a_sentence()
    def from_crawler(cls, crawler: Crawler) -> Self:
        worker = crawler.get_extension(WorkerExtension)
        spider = crawler.spider
        config = (
            Config.read(crawler.settings, {} if spider is None else vars(spider))
            if worker is None
            else worker.config
        )
        if not config.enabled or spider is None or not feeds_from_store(spider):
            raise NotConfigured("nothing is sharded here")
        return cls(crawler, config.shard, None if worker is None else worker.work)

    def _request_scheduled(self, request: Request) -> None:
        self._scheduled.add(request)

    def process_request(self, request: Request) -> None:
        """Raise UnownedRequest or StaleRequest for what must not be downloaded."""
        if request not in self._scheduled:
            return
        token = request.meta.get(TOKEN)
        if token is None:
            # A redirect set out as a request that was this shard's.
            if "redirect_urls" not in request.meta and not self._ownership.holds(request):
                raise UnownedRequest("another shard owns it")
        elif self._work is None or not self._work.units.knows(token):
            assert self._stats is not None
            self._stats.inc_value("hexshard/late/requests")
            raise StaleRequest("the attempt it belongs to has ended")
