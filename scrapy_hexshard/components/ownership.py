"""Whether a request is this shard's to make."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy_hexshard.components.request_codec import key_of
from scrapy_hexshard.errors import InvalidKeyError

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

    from scrapy_hexshard.sharding import ShardSpec

logger = logging.getLogger(__name__)


class Ownership:
    """Whether a request is this shard's, by its key; what is not is counted."""

    def __init__(self, crawler: Crawler, shard: ShardSpec) -> None:
        self._stats = crawler.stats
        self._shard = shard
        self._said = False

    def holds(self, request: Request) -> bool:
        """Whether this shard owns *request*. One whose URL can be no key is left to Scrapy."""
        try:
            owned = self._shard.owns(key_of(request))
        except InvalidKeyError:
            return True
        if not owned:
            self._count(request)
        return owned

    def _count(self, request: Request) -> None:
        assert self._stats is not None
        self._stats.inc_value("hexshard/unowned")
        if not self._said:
            self._said = True
            logger.debug(
                "Dropped %s: another shard owns it; others are only counted (hexshard/unowned).",
                request,
            )
