"""Requests of callbacks that become keys of their own, stored with the page that found them."""

from __future__ import annotations

import logging
from functools import cached_property

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware
from scrapy.exceptions import IgnoreRequest

from scrapy_hexshard.components.request_codec import (
    SHARD_KEY,
    CannotStoreError,
    encode_request,
    key_of,
    set_out,
    stored_priority,
)
from scrapy_hexshard.components.tally import Tally
from scrapy_hexshard.errors import InvalidKeyError
from scrapy_hexshard.sharding import ShardSpec
from scrapy_hexshard.store.contract import Work as StoredWork
from scrapy_hexshard.units import Unit

logger = logging.getLogger(__name__)


class Links:
    """What the open units have found.

    With *all_links* every request a callback yields is a link; otherwise those that say so with
    ``meta["shard_key"]``. None is where a page *waits* for its feed, which may close last of all.
    """

    def __init__(
        self, crawler: Crawler, shard: ShardSpec, tally: Tally, *, all_links: bool, waits: bool
    ) -> None:
        self.led_elsewhere = all_links  # to keys of other shards, or might have
        self._shard = shard
        self._crawler = crawler
        self._all = all_links
        self._waits = waits
        self._found: dict[int, dict[str, StoredWork]] = {}
        self._tally = tally

    def take(self, unit: Unit, request: Request) -> bool:
        """Whether *request* leaves its unit: as a link that is stored with it, or for good."""
        named = request.meta.get(SHARD_KEY) is not None
        if not (named or self._all):
            return False
        if request.dont_filter and not named:
            # So a retry that a callback makes is marked, and a page that is asked for once more.
            return self._keep(unit, "it has dont_filter=True")
        set_out(request)
        try:
            key = key_of(request)
        except InvalidKeyError as error:
            return self._keep(unit, str(error))
        if key == unit.key:
            # A link of a page to itself; but a shard_key that came with the response's meta names
            # the work this request belongs to.
            return not named
        return self._is_offsite(request) or self._store(unit, key, request)

    def found(self, token: int) -> list[StoredWork]:
        """The links of the unit of *token*, which are forgotten."""
        return list(self._found.pop(token, {}).values())

    def _store(self, unit: Unit, key: str, request: Request) -> bool:
        if self._waits:
            return self._keep(unit, "HEXSHARD_COMPLETE_AFTER = 'feed' would store it too late")
        spider = self._crawler.spider
        assert spider is not None
        try:
            payload = encode_request(request, spider, key)
        except CannotStoreError as error:
            return self._keep(unit, str(error))
        found = self._found.setdefault(unit.token, {})
        # As the scheduler has it, the first of two requests for one page wins.
        found.setdefault(key, StoredWork(key, payload, stored_priority(request)))
        self.led_elsewhere = self.led_elsewhere or not self._shard.owns(key)
        return True

    @cached_property
    def _offsite(self) -> OffsiteMiddleware | None:
        return self._crawler.get_downloader_middleware(OffsiteMiddleware)

    def _is_offsite(self, request: Request) -> bool:
        spider = self._crawler.spider
        if self._offsite is None or spider is None:
            return False
        try:
            self._offsite.request_scheduled(request, spider)  # counts and logs it, too
        except IgnoreRequest:
            return True
        return False

    def _keep(self, unit: Unit, why: str) -> bool:
        self._tally.count("links_kept")
        if self._tally.is_new("links kept"):
            logger.warning(
                "A link of %s stays a request of its page, as others will (hexshard/links_kept): "
                "%s.",
                unit.key,
                why.rstrip("."),
            )
        return False
