"""Why a request was dropped; Scrapy treats both as requests that were ignored on purpose."""

from __future__ import annotations

from scrapy.exceptions import IgnoreRequest


class UnownedRequest(IgnoreRequest):
    """A request dropped because another shard owns its key; it fails no unit."""


class StaleRequest(IgnoreRequest):
    """A request dropped because the attempt it belongs to has ended."""
