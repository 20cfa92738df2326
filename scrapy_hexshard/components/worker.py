"""The extension that makes a Scrapy process a worker of one shard."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.utils.asyncio import create_looping_call

from scrapy_hexshard.components.feed_rules import check_feeds
from scrapy_hexshard.components.launcher_link import LauncherLink, launcher_pipes
from scrapy_hexshard.components.sentences import in_a_sentence
from scrapy_hexshard.components.work import Work, feeds_from_store
from scrapy_hexshard.config import Config
from scrapy_hexshard.errors import SettingError

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.statscollectors import StatsCollector

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0


class WorkerExtension:
    """Knows the worker's configuration, does its housekeeping, and reports to a launcher.

    *work* is None where nothing is leased: with no store, and in commands such as ``scrapy fetch``.
    """

    def __init__(self, crawler: Crawler, config: Config, work: Work | None) -> None:
        self.config = config
        self.work = work
        self._crawler = crawler
        self._link = LauncherLink(launcher_pipes())
        self._housekeeping = create_looping_call(self._keep_house)

    @classmethod
    @in_a_sentence()
    def from_crawler(cls, crawler: Crawler) -> Self:
        spider = crawler.spider
        config = Config.read(crawler.settings, {} if spider is None else vars(spider))
        if not config.enabled:
            raise NotConfigured("HEXSHARD_ENABLED is False")
        if config.items and not config.store:
            raise SettingError(
                "HEXSHARD_ITEMS keeps items in the store, and HEXSHARD_STORE is not set. Set it, "
                "for example to 'crawl.sqlite3', or leave both out to crawl without a store."
            )
        work = None
        if config.store and spider is not None and feeds_from_store(spider):
            _check_settings(crawler)
            check_feeds(crawler.settings, config, spider)
            work = Work(crawler, config)
        self = cls(crawler, config, work)
        if config.share_rate:
            _share_rate(crawler, config.shard.count)
        crawler.signals.connect(self.spider_opened, signal=signals.spider_opened)
        crawler.signals.connect(self.spider_closed, signal=signals.spider_closed)
        return self

    def spider_opened(self, spider: Spider) -> None:
        """Start the work and the housekeeping."""
        self._log_shard()
        if self.config.store is None:
            logger.info("No HEXSHARD_STORE: nothing is leased, stored or resumed.")
        if self.work is not None:
            self.work.open()
            # A life that ends within a second was not in vain, either.
            self.work.units.on_first_end = self._report
        self._link.opened(spider.name, self.config.shard)
        timing = (SWEEP_SECONDS, self.config.lease_seconds / 3, self.config.unit_timeout / 4)
        self._housekeeping.start(min(timing), now=False)

    async def spider_closed(self, reason: str) -> None:
        """Give back what is open and say how it ended."""
        if self._housekeeping.running:
            self._housekeeping.stop()
        detail = fault = None
        if self.work is not None:
            await self.work.close(reason)
            reason, detail = self.work.ending.reason or reason, self.work.ending.detail
            fault = self.work.commonest_fault
        self._link.closed(reason, detail, self._totals(), fault)
        if self._link.dropped:
            self._stats.set_value("hexshard/status_dropped", self._link.dropped)

    def _keep_house(self) -> None:
        if self.work is not None:
            self.work.sweep()
        self._report()

    def _report(self) -> None:
        self._link.progress(self._totals())

    def _totals(self) -> dict[str, int]:
        pages = self._stats.get_value("response_received_count", 0)
        work = {} if self.work is None else self.work.report()
        return {**work, "pages": pages}

    @property
    def _stats(self) -> StatsCollector:
        assert self._crawler.stats is not None
        return self._crawler.stats

    def _log_shard(self) -> None:
        shard, settings = self.config.shard, self._crawler.settings
        self._stats.set_value("hexshard/shard", shard.index)
        self._stats.set_value("hexshard/shards", shard.count)
        if self.config.shard_source == "nowhere":
            logger.info("No shard was given: this is worker 0 of 1 and owns every key.")
        else:
            logger.info("Shard %d of %d, from the %s.", *_facts(self.config))
        delay = settings.getfloat("DOWNLOAD_DELAY")
        parallel = settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")
        logger.info(
            "Limit per site: this worker %d at a time, %g s apart; all of the crawl, %d at a time, "
            "%g s apart.",
            parallel,
            delay,
            parallel * shard.count,
            delay / shard.count,
        )


def _facts(config: Config) -> tuple[int, int, str]:
    return config.shard.index, config.shard.count, config.shard_source


def _check_settings(crawler: Crawler) -> None:
    if crawler.settings.get("JOBDIR"):
        raise SettingError(
            "JOBDIR and HEXSHARD_STORE both resume a crawl, and requests that JOBDIR brings back "
            "would belong to no claim. Remove JOBDIR: the store keeps what is left to do."
        )


def _share_rate(crawler: Crawler, shards: int) -> None:
    settings = crawler.settings
    delay = settings.getfloat("DOWNLOAD_DELAY") * shards
    parallel = max(1, settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN") // shards)
    shares = {"DOWNLOAD_DELAY": delay, "CONCURRENT_REQUESTS_PER_DOMAIN": parallel}
    for name, value in shares.items():
        settings.set(name, value, priority=settings.getpriority(name) or 0)
