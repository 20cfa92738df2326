"""Why a worker ends, where that is not because its shard is finished."""

from __future__ import annotations

import logging

from scrapy.crawler import Crawler
from scrapy.utils.defer import deferred_from_coro
from twisted.python.failure import Failure

from scrapy_hexshard.components.engine_state import EngineState
from scrapy_hexshard.components.feed_files import FeedError
from scrapy_hexshard.components.tally import Tally

logger = logging.getLogger(__name__)


class Ending:
    """Closes the spider, and keeps the reason to tell instead of Scrapy's."""

    def __init__(self, crawler: Crawler, state: EngineState, tally: Tally) -> None:
        self.reason: str | None = None  # overrides Scrapy's: Scrapy would call it finished
        self.detail: str | None = None  # what else to tell the launcher of it
        self._crawler = crawler
        self._state = state
        self._tally = tally

    def stop(self, reason: str, detail: str | None = None) -> None:
        """Close the spider for a reason that is not *finished*."""
        if self.reason is None:
            self.reason, self.detail = reason, detail
        self.close_spider(reason)

    def close_spider(self, reason: str) -> None:
        """Make Scrapy end the crawl, unless it does so already."""
        engine = self._crawler.engine
        if engine is None or engine.spider is None or self._state.closing:
            return
        deferred_from_coro(engine.close_spider_async(reason=reason)).addErrback(_log_failure)

    def store_failed(self, failure: Failure) -> None:
        """A call of the store has failed: give_up(), for a Deferred."""
        self.give_up(failure.value)

    def give_up(self, error: BaseException | None) -> None:
        """Say once what is wrong with the store or a feed, and stop: nothing can be settled."""
        if isinstance(error, FeedError):
            if self._tally.is_new("feed failed"):
                logger.error("No key can be completed, so this worker stops: %s", error)
            self.stop("feed_error", str(error))
        else:
            self.report_store(error)
            self.stop("store_error")

    def report_store(self, error: BaseException | None) -> None:
        """Say once what is wrong with the store of a worker that ends anyway."""
        if self.reason is None:
            self.reason, self.detail = "store_error", str(error)
        if self._tally.is_new("store failed"):
            logger.error("The store failed, so this worker stops: %s", error)


def _log_failure(failure: Failure) -> None:
    logger.error("Closing the spider failed: %s", failure.getErrorMessage())
