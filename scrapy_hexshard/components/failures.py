"""The outcome that a failure gives the unit it belongs to."""

from __future__ import annotations

from collections.abc import Collection

from scrapy.exceptions import CloseSpider, IgnoreRequest
from scrapy.spidermiddlewares.httperror import HttpError

from scrapy_hexshard.components.exceptions import UnownedRequest
from scrapy_hexshard.components.proxy_problems import proxy_problem
from scrapy_hexshard.components.unit_events import UnitEvents
from scrapy_hexshard.units import Unit

_ROBOTS = "Forbidden by robots.txt"  # of RobotsTxtMiddleware, which has no exception of its own


class Failures:
    """Fails units, and tells *events* of what comes too late for that.

    A status of *permanent_http* is not tried again when a key's own request got it.
    """

    def __init__(self, events: UnitEvents, permanent_http: Collection[int]) -> None:
        self._events = events
        self._permanent_http = permanent_http

    def of_request(self, unit: Unit, error: BaseException, *, own: bool) -> None:
        """A request ended with *error*, and nothing handled it; *own* if it is the key's own."""
        if problem := proxy_problem(error):
            self._fail(unit, f"proxy: {problem}")
        elif isinstance(error, HttpError):
            status = error.response.status
            self._fail(unit, f"http {status}", permanent=own and status in self._permanent_http)
        elif isinstance(error, UnownedRequest):
            pass
        elif isinstance(error, IgnoreRequest):
            robots = str(error) == _ROBOTS
            self._fail(unit, "robots" if robots else "ignored", permanent=robots)
        else:
            self._fail(unit, f"download: {type(error).__name__}")

    def of_spider(self, unit: Unit, error: BaseException | None) -> None:
        """A callback or errback raised *error*."""
        if isinstance(error, CloseSpider):
            unit.interrupted = True
        else:
            self._fail(unit, f"spider: {type(error).__name__}")

    def of_item(self, unit: Unit, error: BaseException | None) -> None:
        """A pipeline raised *error*."""
        self._fail(unit, f"item: {type(error).__name__}")

    def _fail(self, unit: Unit, outcome: str, *, permanent: bool = False) -> None:
        if unit.ended:
            self._events.late("errors")
        else:
            unit.fail(outcome, permanent=permanent)
