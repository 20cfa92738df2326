"""The one settings line: an add-on that enables every component."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.exceptions import NotConfigured
from scrapy.settings import BaseSettings

from scrapy_hexshard.components.dupefilter import UnitDupeFilter
from scrapy_hexshard.components.feed_params import supply_shard
from scrapy_hexshard.components.feeder import DropMiddleware, FeederMiddleware
from scrapy_hexshard.components.proxy_middleware import ProxyMiddleware
from scrapy_hexshard.components.sentences import in_a_sentence
from scrapy_hexshard.components.shard_middleware import ShardMiddleware
from scrapy_hexshard.components.worker import WorkerExtension
from scrapy_hexshard.config import Config

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler

COMPONENTS = (
    ("EXTENSIONS", WorkerExtension, 0),
    # Nearest the spider, so that what is fed passes every other middleware's process_start().
    ("SPIDER_MIDDLEWARES", FeederMiddleware, 1050),
    ("SPIDER_MIDDLEWARES", DropMiddleware, 1040),
    # Outermost, so that nothing is spent on a request that is dropped.
    ("DOWNLOADER_MIDDLEWARES", ShardMiddleware, 25),
    # Innermost, so that nothing else sees a request with credentials on it.
    ("DOWNLOADER_MIDDLEWARES", ProxyMiddleware, 950),
)


class HexShardAddon:
    """Makes an ordinary spider crawl one shard, by one line of settings.

    That line is ``ADDONS = {"scrapy_hexshard.HexShardAddon": 300}``.

    Raises SettingError or ShardError for a setting that cannot be used.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    @in_a_sentence()
    def update_settings(self, settings: BaseSettings) -> None:
        """Add the components, unless the project has placed them itself."""
        spider = self._crawler.spider
        config = Config.read(settings, {} if spider is None else vars(spider))
        supply_shard(settings)
        if not config.enabled:
            raise NotConfigured("HEXSHARD_ENABLED is False")
        for setting, component, order in COMPONENTS:
            settings.setdefault_in_component_priority_dict(setting, component, order)
        settings.set("DUPEFILTER_CLASS", UnitDupeFilter, priority="addon")
