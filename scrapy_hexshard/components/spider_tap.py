"""Watches what the spider and its pipelines make of a result: what they yield, and what fails."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from scrapy import Request
from twisted.python.failure import Failure

from scrapy_hexshard.components.failures import Failures
from scrapy_hexshard.components.request_codec import OWN, of_unit
from scrapy_hexshard.components.unit_events import UnitEvents
from scrapy_hexshard.components.visits import Visit, Visits


class SpiderTap:
    """Stands before three methods of the scraper, each passed in first, and hears of its items."""

    def __init__(self, events: UnitEvents, visits: Visits, failures: Failures) -> None:
        self._events = events
        self._visits = visits
        self._failures = failures

    # Callbacks and errbacks.

    async def call_spider(
        self, call: Callable[[Any, Request], Awaitable[Any]], result: Any, request: Request
    ) -> Any:
        """What the callback or errback for *result* returns."""
        visit = self._visits.of(request)
        if visit is None or not isinstance(result, Failure):
            return await call(result, request)
        visit.failure = result.value
        try:
            return await call(result, request)
        except BaseException:
            visit.raised = True
            raise

    async def handle_spider_output(
        self, handle: Callable[..., Awaitable[None]], result: Any, request: Request, response: Any
    ) -> None:
        """Take what a callback yields as part of its unit, or discard it if that has ended."""
        visit = self._visits.of(response)
        if visit is not None:
            tag = self._tag_async if isinstance(result, AsyncIterator) else self._tag
            result = tag(result, visit)
        await handle(result, request, response)

    def _tag(self, output: Iterable[Any], visit: Visit) -> Iterator[Any]:
        with self._noting_cancellation(visit):
            for each in output:
                if (admitted := self._admit(each, visit)) is not None:
                    yield admitted

    async def _tag_async(self, output: AsyncIterator[Any], visit: Visit) -> AsyncIterator[Any]:
        with self._noting_cancellation(visit):
            async for each in output:
                if (admitted := self._admit(each, visit)) is not None:
                    yield admitted

    @contextmanager
    def _noting_cancellation(self, visit: Visit) -> Iterator[None]:
        try:
            yield
        except CancelledError as error:
            # It is no Exception: Scrapy either hangs on it or takes the callback for finished.
            self._failures.of_spider(visit.unit, error)
            raise

    def _admit(self, output: Any, visit: Visit) -> Any:
        """The output as one of the visit's unit; None if it is late, or a key of its own."""
        unit = visit.unit
        if output is None:
            return None
        is_request = isinstance(output, Request)
        if unit.ended:
            self._events.late("requests" if is_request else "items")
            return None
        visit.yielded += 1
        unit.moved()
        if not is_request:
            unit.yielded += 1
            return output
        if self._events.follow(unit, output):
            return None
        # A spider may also have copied the meta of another unit's response.
        output = of_unit(output, unit.token)
        output.meta.pop(OWN, None)
        return output

    def handle_spider_error(
        self,
        handle: Callable[..., None],
        failure: Failure,
        request: Request,
        response: Any,
        *args: Any,
    ) -> None:
        """A callback or errback raised."""
        visit = self._visits.of(response)
        if visit is not None:
            self._failures.of_spider(visit.unit, failure.value)
        handle(failure, request, response, *args)

    # Items.

    def item_scraped(self, item: Any, response: Any) -> None:
        """*item* has passed the pipelines."""
        if (unit := self._visits.unit_of(response)) is None:
            return
        if unit.ended:
            self._events.late("items")
            return
        unit.moved()
        self._events.item_scraped(unit, item)

    def item_dropped(self, response: Any) -> None:
        """A pipeline dropped an item, which is no failure."""
        if (unit := self._visits.unit_of(response)) is not None:
            unit.moved()

    def item_error(self, response: Any, failure: Failure) -> None:
        """A pipeline raised."""
        if (unit := self._visits.unit_of(response)) is not None:
            self._failures.of_item(unit, failure.value)
