"""Tells the ledger what each request of a crawl came to.

No public signal says that a request is over: of the fifteen ways in which one can end, item_scraped
and spider_error see five. So the tap wraps a few methods of the live engine, scraper and scheduler:

* ``scheduler.enqueue_request``: a request has been accepted, and belongs to a unit;
* ``engine._handle_downloader_output``: its result has come in, and once the Deferred it returns
  fires, its callback or errback, pipelines and follow-ups are through;
* ``scraper.call_spider_async``: a failure is about to be offered to an errback;
* ``scraper.handle_spider_output_async``: what a callback or errback yields;
* ``scraper.handle_spider_error``: it raised;
* ``scheduler.next_request``: work of no unit begins.

This file and engine_state are the two that touch Scrapy's insides. Scrapy may one day offer a hook
for the same (scrapy#7978). Until then a Scrapy whose methods differ is refused with a sentence.
"""

from __future__ import annotations

import inspect
from asyncio import CancelledError
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import scrapy
from scrapy import Request, signals
from scrapy.core.engine import ExecutionEngine
from scrapy.core.scheduler import Scheduler
from scrapy.core.scraper import Scraper
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider, IgnoreRequest
from scrapy.http import Response
from scrapy.spidermiddlewares.httperror import HttpError
from scrapy.utils.asyncio import is_asyncio_available
from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from scrapy_hexshard.components.engine_state import EngineState
from scrapy_hexshard.components.exceptions import UnownedRequest
from scrapy_hexshard.components.proxy_problems import proxy_problem
from scrapy_hexshard.components.request_codec import OWN, TOKEN, of_unit
from scrapy_hexshard.errors import UnsupportedScrapyError
from scrapy_hexshard.units import NOT_SCHEDULED, Ledger, Unit

_KNOWN: dict[type, dict[str, list[str]]] = {
    ExecutionEngine: {"_handle_downloader_output": ["result", "request"]},
    Scraper: {
        "call_spider_async": ["result", "request"],
        "handle_spider_output_async": ["result", "request", "response"],
        "handle_spider_error": ["_failure", "request", "response"],
    },
    Scheduler: {"enqueue_request": ["request"], "next_request": []},
}
_ROBOTS = "Forbidden by robots.txt"  # of RobotsTxtMiddleware, which has no exception of its own


class Listener(Protocol):
    """What the tap reports beside the ledger's own counting."""

    def late(self, what: str) -> None:
        """Something of an ended attempt was discarded."""

    def filtered(self, unit: Unit) -> None:
        """The duplicate filter refused a request of *unit*."""

    def item_scraped(self, unit: Unit, item: Any) -> None:
        """*item* of *unit* has passed the pipelines."""

    def requested(self, unit: Unit) -> None:
        """*unit* has one more request, which the scheduler has accepted."""

    def follow(self, unit: Unit, request: Request) -> bool:
        """Whether *request*, which a callback of *unit* yields, becomes a key of its own."""


class _Visit:
    """One result on its way through the spider."""

    __slots__ = ("failure", "own", "raised", "unit", "yielded")

    def __init__(self, unit: Unit, own: bool, result: Any) -> None:
        self.unit = unit
        self.own = own
        self.failure = result.value if isinstance(result, Failure) else None
        self.raised = False
        self.yielded = 0


_current: ContextVar[_Visit | None] = ContextVar("hexshard_visit", default=None)


def check_scrapy() -> None:
    """Raise UnsupportedScrapyError unless the methods the tap wraps are those it knows."""
    for owner, methods in _KNOWN.items():
        for name, expected in methods.items():
            method = getattr(owner, name, None)
            found = list(inspect.signature(method).parameters)[1:] if method else None
            if found is None or found[: len(expected)] != expected:
                raise UnsupportedScrapyError(
                    f"Scrapy {scrapy.__version__} has no {owner.__name__}.{name}"
                    f"({', '.join(expected)}), which counting the work of a key relies on. "
                    "Install a Scrapy that this version of scrapy-hexshard supports."
                )


class EngineTap:
    """Feeds *ledger* from a running crawl and reports to *listener*."""

    def __init__(
        self,
        crawler: Crawler,
        ledger: Ledger,
        listener: Listener,
        state: EngineState,
        permanent_http: Collection[int] = (),
    ) -> None:
        check_scrapy()
        self._crawler = crawler
        self._state = state
        self._ledger = ledger
        self._listener = listener
        self._permanent_http = permanent_http
        # By id() of the request and of the result, both alive for as long as the visit.
        self._visits: dict[int, _Visit] = {}
        # Elsewhere callbacks run in a shared context, which would name the wrong unit.
        self._context_is_ours = is_asyncio_available()

    def install(self) -> None:
        """Wrap the methods of the engine that is about to start."""
        engine = self._crawler.engine
        assert engine is not None
        scraper, scheduler = engine.scraper, engine._slot.scheduler  # type: ignore[union-attr]
        self._enqueue = scheduler.enqueue_request
        self._next = scheduler.next_request
        self._handle = engine._handle_downloader_output
        self._call = scraper.call_spider_async
        self._output = scraper.handle_spider_output_async
        self._error = scraper.handle_spider_error
        # Scrapy has no hook to assign to: these are its methods, replaced on purpose.
        vars(scheduler).update(
            enqueue_request=self._enqueue_request, next_request=self._next_request
        )
        vars(engine).update(_handle_downloader_output=self._handle_downloader_output)
        vars(scraper).update(
            call_spider_async=self._call_spider,
            handle_spider_output_async=self._handle_spider_output,
            handle_spider_error=self._handle_spider_error,
        )
        connect = self._crawler.signals.connect
        connect(self._item_scraped, signals.item_scraped)
        connect(self._item_dropped, signals.item_dropped)
        connect(self._item_error, signals.item_error)

    # Requests in.

    def _enqueue_request(self, request: Request) -> bool:
        self._adopt(request)
        token = request.meta.get(TOKEN)
        if token is None:
            return self._enqueue(request)
        unit = self._ledger.get(token)
        if unit is None:
            self._listener.late("requests")
            return False
        try:
            accepted = self._enqueue(request)
        except Exception:
            # Scrapy logs it and goes on without the request; the key must not pass for done.
            unit.fail(NOT_SCHEDULED)
            raise
        if accepted:
            unit.begin_request()
            self._listener.requested(unit)
        else:
            unit.filtered += 1
            self._listener.filtered(unit)
        return accepted

    def _adopt(self, request: Request) -> None:
        """Give a request that a pipeline or callback sends by itself to the unit it works on."""
        visit = _current.get() if self._context_is_ours else None
        if visit is not None and request.meta.get(TOKEN) != visit.unit.token:
            request.meta[TOKEN] = visit.unit.token

    def _next_request(self) -> Request | None:
        # The engine's loop may have been scheduled from within a callback of some unit.
        _current.set(None)
        return self._next()

    # Results.

    def _handle_downloader_output(self, result: Any, request: Request) -> Deferred[None]:
        token = request.meta.get(TOKEN)
        if token is None:
            return self._within(None, result, request)
        unit = self._ledger.get(token)
        if unit is None:
            self._listener.late("responses")
            return succeed(None)
        own = bool(request.meta.get(OWN))
        if isinstance(result, Request):
            return self._replaced(unit, own, result, request)
        if id(result) in self._visits and isinstance(result, Response):
            result = result.copy()  # a middleware answers several requests with the same one
        visit = _Visit(unit, own, result)
        self._visits[id(request)] = self._visits[id(result)] = visit
        unit.moved()
        done = self._within(visit, result, request)
        return done.addBoth(self._visited, visit, id(request), id(result))

    def _within(self, visit: _Visit | None, result: Any, request: Request) -> Deferred[None]:
        before = _current.set(visit)
        try:
            return self._handle(result, request)
        finally:
            _current.reset(before)

    def _replaced(self, unit: Unit, own: bool, new: Request, request: Request) -> Deferred[None]:
        """A retry, a redirect or any other request that a middleware put in the place of one."""
        new.meta[TOKEN] = unit.token
        if own:
            new.meta[OWN] = True
        accepted = unit.requests
        done = self._within(None, new, request)
        if own and unit.requests == accepted:
            unit.fail(NOT_SCHEDULED)
        unit.end_request()
        return done

    def _visited(self, result: Any, visit: _Visit, *ids: int) -> Any:
        for each in ids:
            self._visits.pop(each, None)
        # An errback, or a middleware, that made something of a failure has handled it; one that
        # quietly returned has, too, unless the key's own page is what is missing.
        handled = visit.yielded or not (visit.raised or visit.own)
        if visit.failure is not None and not handled:
            self._fail_for(visit)
        visit.unit.end_request()
        return result

    def _fail_for(self, visit: _Visit) -> None:
        error = visit.failure
        assert error is not None
        if problem := proxy_problem(error):
            self._fail(visit.unit, f"proxy: {problem}")
        elif isinstance(error, HttpError):
            status = error.response.status
            permanent = visit.own and status in self._permanent_http
            self._fail(visit.unit, f"http {status}", permanent=permanent)
        elif isinstance(error, UnownedRequest):
            pass
        elif isinstance(error, IgnoreRequest):
            robots = str(error) == _ROBOTS
            self._fail(visit.unit, "robots" if robots else "ignored", permanent=robots)
        else:
            self._fail(visit.unit, f"download: {type(error).__name__}")

    def _fail(self, unit: Unit, outcome: str, *, permanent: bool = False) -> None:
        if unit.ended:
            self._listener.late("errors")
        else:
            unit.fail(outcome, permanent=permanent)

    # The spider.

    async def _call_spider(self, result: Any, request: Request) -> Any:
        visit = self._visits.get(id(request))
        if visit is None or not isinstance(result, Failure):
            return await self._call(result, request)
        visit.failure = result.value
        try:
            return await self._call(result, request)
        except BaseException:
            visit.raised = True
            raise

    async def _handle_spider_output(self, result: Any, request: Request, response: Any) -> None:
        visit = self._visits.get(id(response))
        if visit is not None:
            tag = self._tag_async if isinstance(result, AsyncIterator) else self._tag
            result = tag(result, visit)
        await self._output(result, request, response)

    def _tag(self, output: Iterable[Any], visit: _Visit) -> Iterator[Any]:
        with self._noting_cancellation(visit):
            for each in output:
                if (admitted := self._admit(each, visit)) is not None:
                    yield admitted

    async def _tag_async(self, output: AsyncIterator[Any], visit: _Visit) -> AsyncIterator[Any]:
        with self._noting_cancellation(visit):
            async for each in output:
                if (admitted := self._admit(each, visit)) is not None:
                    yield admitted

    @contextmanager
    def _noting_cancellation(self, visit: _Visit) -> Iterator[None]:
        try:
            yield
        except CancelledError as error:
            # It is no Exception: Scrapy either hangs on it or takes the callback for finished.
            self._fail(visit.unit, f"spider: {type(error).__name__}")
            raise

    def _admit(self, output: Any, visit: _Visit) -> Any:
        """The output as one of the visit's unit; None if it is late."""
        unit = visit.unit
        if output is None:
            return None
        is_request = isinstance(output, Request)
        if unit.ended:
            self._listener.late("requests" if is_request else "items")
            return None
        visit.yielded += 1
        unit.moved()
        if is_request and self._listener.follow(unit, output):
            return None
        if is_request:
            # A spider may also have copied the meta of another unit's response.
            output = of_unit(output, unit.token)
            output.meta.pop(OWN, None)
        else:
            unit.yielded += 1
        return output

    def _handle_spider_error(
        self, failure: Failure, request: Request, response: Any, *args: Any
    ) -> None:
        visit = self._visits.get(id(response))
        if visit is not None:
            if isinstance(failure.value, CloseSpider):
                visit.unit.interrupted = True
            else:
                self._fail(visit.unit, f"spider: {type(failure.value).__name__}")
        self._error(failure, request, response, *args)

    # Items.

    def _item_scraped(self, item: Any, response: Any) -> None:
        if (unit := self.unit_of(response)) is None:
            return
        if unit.ended:
            self._listener.late("items")
            return
        unit.moved()
        self._listener.item_scraped(unit, item)

    def _item_dropped(self, response: Any) -> None:
        if (unit := self.unit_of(response)) is not None:
            unit.moved()

    def _item_error(self, response: Any, failure: Failure) -> None:
        if (unit := self.unit_of(response)) is not None:
            self._fail(unit, f"item: {type(failure.value).__name__}")

    def unit_of(self, response: Any) -> Unit | None:
        """The unit whose callback is at *response*."""
        visit = self._visits.get(id(response))
        return None if visit is None else visit.unit
