"""The spiders, and the ways of waiting, that tests of the components share."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from scrapy import Request, Spider
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

PATIENCE = 30.0

# What nobody refers to would not hang, but be thrown away by the garbage collector.
_hanging: list[Deferred[None]] = []


async def nap(seconds: float) -> None:
    """Sleep under any event loop."""
    slept: Deferred[None] = Deferred()
    call_later(seconds, slept.callback, None)
    await maybe_deferred_to_future(slept)


async def for_ever() -> None:
    """Hang, as on something that never answers."""
    _hanging.append(Deferred())
    await maybe_deferred_to_future(_hanging[-1])


async def until(condition: Callable[[], Any]) -> None:
    """Sleep until *condition* holds; it is an error if that takes too long."""
    give_up = monotonic() + PATIENCE
    while not condition():
        assert monotonic() < give_up, "waited in vain"
        await nap(0.02)


class Plain(Spider):
    """One item per page."""

    name = "plain"

    def parse(self, response: Any) -> Any:
        yield {"url": response.url}

    def follow(self, response: Any, path: str, **options: Any) -> Request:
        return Request(response.urljoin(path), **options)

    def stat(self, name: str) -> Any:
        return self.crawler.stats.get_value(name, 0)


class Never(Plain):
    """Its default callback must not be called."""

    def parse(self, response: Any) -> Any:
        raise AssertionError("the default callback was called")
