"""What the tap reports of the units: items to keep, links, and what deserves a word."""

from __future__ import annotations

import logging
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.utils.serialize import ScrapyJSONEncoder

from scrapy_hexshard.components.links import Links
from scrapy_hexshard.components.tally import Tally
from scrapy_hexshard.units import Unit

logger = logging.getLogger(__name__)

MANY_REQUESTS = 1000


class UnitEvents:
    """The listener of a crawl's EngineTap; with *keeps_items* a unit takes its items along."""

    def __init__(self, crawler: Crawler, links: Links, tally: Tally, *, keeps_items: bool) -> None:
        self._dupefilter = str(crawler.settings["DUPEFILTER_CLASS"])
        self._links = links
        self._tally = tally
        self._keeps_items = keeps_items
        self._encoder = ScrapyJSONEncoder()

    def late(self, what: str) -> None:
        """Something of an ended attempt was discarded."""
        self._tally.count(f"late/{what}")

    def filtered(self, unit: Unit) -> None:
        """The duplicate filter refused a request of *unit*."""
        self._tally.count("filtered")
        if "UnitDupeFilter" not in self._dupefilter and self._tally.is_new("filtered"):
            logger.warning(
                "DUPEFILTER_CLASS filtered a request of %s. It serves all keys at once, so a key "
                "may miss a page that another one has requested; see hexshard/filtered.",
                unit.key,
            )

    def item_scraped(self, unit: Unit, item: Any) -> None:
        """*item* of *unit* has passed the pipelines."""
        if not self._keeps_items:
            return
        try:
            unit.items.append(self._encoder.encode(item))
        except (TypeError, ValueError, RecursionError) as error:
            logger.warning("An item of %s cannot be stored as JSON: %s", unit.key, error)
            unit.fail(f"item: {type(error).__name__}")

    def follow(self, unit: Unit, request: Request) -> bool:
        """Whether *request*, which a callback of *unit* yields, becomes a key of its own."""
        return self._links.take(unit, request)

    def requested(self, unit: Unit) -> None:
        """*unit* has one more request, which the scheduler has accepted."""
        if unit.requests == MANY_REQUESTS and self._tally.is_new("many requests"):
            logger.warning(
                "%s has made %d requests and is one unit of work: a failure repeats them all, and "
                "one worker makes them all. Where each page can stand alone, make it a key: with "
                "HEXSHARD_FOLLOW = 'key' every link is one; or give meta['shard_key'] to some.",
                unit.key,
                MANY_REQUESTS,
            )
