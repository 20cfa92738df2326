"""Which batches of Scrapy's feeds hold the items of a unit.

FeedExporter tells nobody where an item went and swallows what an exporter raises, so its signal
handlers are called from here instead.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from pydispatch.dispatcher import (  # type: ignore[import-untyped]
    getReceivers,
    liveReceivers,
)
from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.extensions.feedexport import FeedExporter, FeedSlot
from scrapy.settings import BaseSettings
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.misc import load_object
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from scrapy_hexshard.components.feed_batches import Batch, FeedBatches
from scrapy_hexshard.components.feed_files import FeedError
from scrapy_hexshard.units import Unit

logger = logging.getLogger(__name__)


class FeedWatch:
    """Stands between Scrapy's signals and its FeedExporter.

    *unit_of* gives the unit a response belongs to.
    """

    def __init__(
        self, crawler: Crawler, unit_of: Callable[[Any], Unit | None], batches: FeedBatches
    ) -> None:
        self._crawler = crawler
        self._unit_of = unit_of
        self._batches = batches
        self._exporter: FeedExporter | None = None
        self._of_unit: dict[int, set[Batch]] = {}
        self._begun = 0  # of the closings that an older Scrapy only collects

    def install(self) -> None:
        """Take FeedExporter's place; raises FeedError if no item would get into a feed."""
        exporter = self._crawler.get_extension(FeedExporter)
        if exporter is None:
            if _is_wanted(self._crawler.settings):
                raise _unopened()
            return
        if len(exporter.slots) < len(exporter.feeds):
            raise _unopened()
        self._exporter = exporter
        for theirs, ours, signal in (
            (exporter.item_scraped, self._item_scraped, signals.item_scraped),
            (exporter.close_spider, self._close_spider, signals.spider_closed),
        ):
            if theirs not in liveReceivers(getReceivers(self._crawler, signal)):
                raise _unknown(exporter)
            self._crawler.signals.disconnect(theirs, signal)
            self._crawler.signals.connect(ours, signal)
        closing = getattr(exporter, "_close_slot", None)
        if closing is None:
            raise _unknown(exporter)
        # Scrapy has no hook to assign to: it is its method, replaced on purpose.
        vars(exporter).update(_close_slot=partial(self._close_slot, closing))

    @property
    def has_endless(self) -> bool:
        """Whether a feed closes only when the spider does."""
        feeds = {} if self._exporter is None else self._exporter.feeds
        return not all(options["batch_item_count"] for options in feeds.values())

    def open_batches(self) -> set[Batch]:
        """Those that items still go to, and that close in the end if not before."""
        slots = () if self._exporter is None else self._exporter.slots
        return {self._batches.of(slot) for slot in slots}

    def take(self, token: int) -> set[Batch]:
        """The batches that hold items of the attempt of *token*, which is forgotten."""
        return self._of_unit.pop(token, set())

    def _item_scraped(self, item: Any, response: Any, spider: Spider) -> None:
        assert self._exporter is not None
        unit = self._unit_of(response)
        try:
            before = [
                (slot, self._batches.of(slot), slot.itemcount) for slot in self._exporter.slots
            ]
            self._exporter.item_scraped(item, spider)
        except Exception as error:
            if unit is not None and not unit.ended:
                unit.fail(f"feed: {type(error).__name__}")
            raise
        finally:
            self._begin_closings()
        if unit is not None and not unit.ended:
            took = {batch for slot, batch, count in before if slot.itemcount > count}
            self._of_unit.setdefault(unit.token, set()).update(took)

    async def _close_spider(self, spider: Spider) -> None:
        assert self._exporter is not None
        try:
            await self._exporter.close_spider(spider)
        finally:
            self._batches.end_all()

    async def _close_slot(
        self, closing: Callable[[FeedSlot, Spider], Awaitable[None]], slot: FeedSlot, spider: Spider
    ) -> None:
        batch = self._batches.of(slot)
        try:
            await closing(slot, spider)
        except Exception as error:
            if not batch.ended:  # the exporter failed before the storage was asked
                self._batches.end(batch, error)
            raise

    def _begin_closings(self) -> None:
        # Scrapy 2.15 to 2.17 collects the closings of full batches, and begins them at the end.
        closings: list[Any] = getattr(self._exporter, "_pending_close_coros", [])
        for number in range(self._begun, len(closings)):
            closing = deferred_from_coro(closings[number])
            closings[number] = _wait_for(closing)
        self._begun = len(closings)


def _unopened() -> FeedError:
    return FeedError(
        "Scrapy could not open the feeds that FEEDS or -o name, so that their items would be lost. "
        "The log says why, further up."
    )


def _unknown(exporter: FeedExporter) -> FeedError:
    return FeedError(
        f"{type(exporter).__qualname__} is no FeedExporter as Scrapy has it, so that nothing can "
        "tell which keys have their items in it. Turn it off."
    )


def _is_wanted(settings: BaseSettings) -> bool:
    """Whether *settings* name a feed, and do not turn Scrapy's FeedExporter off."""
    if not (settings["FEEDS"] or settings["FEED_URI"]):
        return False
    extensions = settings.getwithbase("EXTENSIONS").items()
    # One that is turned off has no order, and with Scrapy 2.15.0 it is not even there.
    return any(
        order is not None and load_object(name) is FeedExporter for name, order in extensions
    )


def _wait_for(closing: Deferred[None]) -> Any:
    closing.addErrback(_log_failure)

    async def waiting() -> None:
        await maybe_deferred_to_future(closing)

    return waiting()


def _log_failure(failure: Failure) -> None:
    logger.error("Closing a batch of a feed failed: %s", failure.getErrorMessage())
