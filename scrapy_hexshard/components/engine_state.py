"""What Scrapy's engine is working on, and how to make it let go of what hangs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Set
from functools import partial
from typing import Any

from scrapy import Request
from scrapy.core.engine import ExecutionEngine
from scrapy.crawler import Crawler

from scrapy_hexshard.components.request_codec import TOKEN


class _Forgiving(set[Request]):
    """A set from which what hung may still be removed when it ends after all, or is thrown away."""

    remove = set[Request].discard


def _close_once(slot: Any, close_if_idle: Callable[[], None]) -> None:
    if slot.closing is None or not slot.closing.called:
        close_if_idle()


class EngineState:
    """Looks at the engine of *crawler*."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @property
    def _engine(self) -> ExecutionEngine:
        engine = self._crawler.engine
        assert engine is not None
        return engine

    def active_tokens(self, open_tokens: Set[int]) -> set[int]:
        """The tokens with something on the wire, in a callback or in a pipeline.

        Also those with nothing anywhere, such as of a request that a scheduler lost: their units
        wait for no turn, and would never end.
        """
        queued = {
            id(request)
            for slot in self._engine.downloader.slots.values()
            for request, _ in slot.queue
        }
        active: set[int] = set()
        waiting: set[int] = set()
        for request in self._in_progress():
            if TOKEN in request.meta:
                (waiting if id(request) in queued else active).add(request.meta[TOKEN])
        if not self._scheduler_waits():
            active.update(open_tokens - waiting)
        return active

    def _scheduler_waits(self) -> bool:
        slot = self._engine._slot
        return slot is None or slot.scheduler.has_pending_requests()

    def only_abandoned_left(self, open_tokens: Set[int]) -> bool:
        """Whether all that the engine still works on is of units that are no longer open."""
        requests = self._in_progress()
        return bool(requests) and all(
            TOKEN in request.meta and request.meta[TOKEN] not in open_tokens for request in requests
        )

    def let_go(self) -> None:
        """Make the engine forget the requests it works on, which hang: it would wait for ever."""
        engine = self._engine
        slot, scraper = engine._slot, engine.scraper
        assert slot is not None
        assert scraper.slot is not None
        requests = set(slot.inprogress)
        slot.inprogress = _Forgiving(slot.inprogress - requests)
        engine.downloader.active = _Forgiving(engine.downloader.active - requests)
        scraper.slot.active = _Forgiving(scraper.slot.active - requests)
        scraper.slot.itemproc_size = 0
        for owner, closing, check in (
            (slot, slot, "_maybe_fire_closing"),
            (scraper, scraper.slot, "_check_if_closing"),
        ):
            vars(owner)[check] = partial(_close_once, closing, getattr(owner, check))
            getattr(owner, check)()

    def _in_progress(self) -> Collection[Request]:
        slot = self._engine._slot
        return () if slot is None else slot.inprogress

    @property
    def closing(self) -> bool:
        """Whether the engine takes no more work."""
        slot = self._engine._slot
        return slot is None or slot.closing is not None or not self._engine.running

    @property
    def full(self) -> bool:
        """Whether the engine has no room for another download."""
        return self._engine.needs_backout()
