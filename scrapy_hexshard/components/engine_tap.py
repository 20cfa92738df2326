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

This file and engine_state are the two that touch Scrapy's insides: request_tap and spider_tap have
what stands before each method. Scrapy may one day offer a hook for the same (scrapy#7978). Until
then a Scrapy whose methods differ is refused with a sentence.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import scrapy
from scrapy import signals
from scrapy.core.engine import ExecutionEngine
from scrapy.core.scheduler import Scheduler
from scrapy.core.scraper import Scraper
from scrapy.crawler import Crawler

from scrapy_hexshard.components.failures import Failures
from scrapy_hexshard.components.request_tap import RequestTap
from scrapy_hexshard.components.spider_tap import SpiderTap
from scrapy_hexshard.components.unit_events import UnitEvents
from scrapy_hexshard.components.visits import Visits
from scrapy_hexshard.errors import UnsupportedScrapyError
from scrapy_hexshard.units import Ledger, Unit

_KNOWN: dict[type, dict[str, list[str]]] = {
    ExecutionEngine: {"_handle_downloader_output": ["result", "request"]},
    Scraper: {
        "call_spider_async": ["result", "request"],
        "handle_spider_output_async": ["result", "request", "response"],
        "handle_spider_error": ["_failure", "request", "response"],
    },
    Scheduler: {"enqueue_request": ["request"], "next_request": []},
}


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
    """Feeds *ledger* from a running crawl and reports to *events*."""

    def __init__(
        self,
        crawler: Crawler,
        ledger: Ledger,
        events: UnitEvents,
        permanent_http: Collection[int] = (),
    ) -> None:
        check_scrapy()
        self._crawler = crawler
        self._visits = Visits()
        failures = Failures(events, permanent_http)
        self._requests = RequestTap(ledger, events, self._visits, failures)
        self._spider = SpiderTap(events, self._visits, failures)

    def install(self) -> None:
        """Wrap the methods of the engine that is about to start."""
        engine = self._crawler.engine
        assert engine is not None
        assert engine._slot is not None
        requests, spider = self._requests, self._spider
        _wrap(engine._slot.scheduler, "enqueue_request", requests.enqueue_request)
        _wrap(engine._slot.scheduler, "next_request", requests.next_request)
        _wrap(engine, "_handle_downloader_output", requests.handle_downloader_output)
        _wrap(engine.scraper, "call_spider_async", spider.call_spider)
        _wrap(engine.scraper, "handle_spider_output_async", spider.handle_spider_output)
        _wrap(engine.scraper, "handle_spider_error", spider.handle_spider_error)
        connect = self._crawler.signals.connect
        connect(spider.item_scraped, signals.item_scraped)
        connect(spider.item_dropped, signals.item_dropped)
        connect(spider.item_error, signals.item_error)

    def unit_of(self, response: Any) -> Unit | None:
        """The unit whose callback is at *response*."""
        return self._visits.unit_of(response)


def _wrap(owner: object, name: str, stand_in: Callable[..., Any]) -> None:
    # Scrapy has no hook to assign to: these are its methods, replaced on purpose.
    vars(owner)[name] = partial(stand_in, getattr(owner, name))
