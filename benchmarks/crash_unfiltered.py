"""A spider middleware: start requests as Scrapy's own ``start()`` makes them, past the filter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import Request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class UnfilteredStart:
    """Sends each start request whether it was seen before or not."""

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for each in start:
            yield each.replace(dont_filter=True) if isinstance(each, Request) else each
