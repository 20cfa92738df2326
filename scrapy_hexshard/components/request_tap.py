"""Counts the requests of each unit: begun when the scheduler takes one, over when its result is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scrapy import Request
from scrapy.http import Response
from twisted.internet.defer import Deferred, succeed

from scrapy_hexshard.components.failures import Failures
from scrapy_hexshard.components.request_codec import OWN, TOKEN
from scrapy_hexshard.components.unit_events import UnitEvents
from scrapy_hexshard.components.visits import Visit, Visits
from scrapy_hexshard.units import NOT_SCHEDULED, Ledger, Unit

_Handle = Callable[[Any, Request], Deferred[None]]


class RequestTap:
    """Stands before three methods of the engine and its scheduler, each passed in first."""

    def __init__(
        self, ledger: Ledger, events: UnitEvents, visits: Visits, failures: Failures
    ) -> None:
        self._ledger = ledger
        self._events = events
        self._visits = visits
        self._failures = failures

    # Requests in.

    def enqueue_request(self, enqueue: Callable[[Request], bool], request: Request) -> bool:
        """Whether the scheduler has accepted *request*, which then counts for its unit."""
        self._adopt(request)
        token = request.meta.get(TOKEN)
        if token is None:
            return enqueue(request)
        unit = self._ledger.get(token)
        if unit is None:
            self._events.late("requests")
            return False
        try:
            accepted = enqueue(request)
        except Exception:
            # Scrapy logs it and goes on without the request; the key must not pass for done.
            unit.fail(NOT_SCHEDULED)
            raise
        if accepted:
            unit.begin_request()
            self._events.requested(unit)
        else:
            unit.filtered += 1
            self._events.filtered(unit)
        return accepted

    def _adopt(self, request: Request) -> None:
        """Give a request that a pipeline or callback sends by itself to the unit it works on."""
        if visit := self._visits.current():
            request.meta[TOKEN] = visit.unit.token

    def next_request(self, take: Callable[[], Request | None]) -> Request | None:
        """The next request to download."""
        # The engine's loop may have been scheduled from within a callback of some unit.
        self._visits.leave()
        return take()

    # Results.

    def handle_downloader_output(
        self, handle: _Handle, result: Any, request: Request
    ) -> Deferred[None]:
        """What fires once *result*, and all that came of it, is through."""
        token = request.meta.get(TOKEN)
        if token is None:
            return self._visits.run(None, handle, result, request)
        unit = self._ledger.get(token)
        if unit is None:
            self._events.late("responses")
            return succeed(None)
        own = bool(request.meta.get(OWN))
        if isinstance(result, Request):
            return self._replaced(handle, unit, own, result, request)
        if isinstance(result, Response) and self._visits.of(result):
            result = result.copy()  # a middleware answers several requests with the same one
        visit = self._visits.begin(unit, own, request, result)
        unit.moved()
        done = self._visits.run(visit, handle, result, request)
        return done.addBoth(self._visited, visit)

    def _replaced(
        self, handle: _Handle, unit: Unit, own: bool, new: Request, request: Request
    ) -> Deferred[None]:
        """A retry, a redirect or any other request that a middleware put in the place of one."""
        new.meta[TOKEN] = unit.token
        if own:
            new.meta[OWN] = True
        accepted = unit.requests
        done = self._visits.run(None, handle, new, request)
        if own and unit.requests == accepted:
            unit.fail(NOT_SCHEDULED)
        unit.end_request()
        return done

    def _visited(self, result: Any, visit: Visit) -> Any:
        self._visits.end(visit)
        # An errback, or a middleware, that made something of a failure has handled it; one that
        # quietly returned has, too, unless the key's own page is what is missing.
        handled = visit.yielded or not (visit.raised or visit.own)
        if visit.failure is not None and not handled:
            self._failures.of_request(visit.unit, visit.failure, own=visit.own)
        visit.unit.end_request()
        return result
