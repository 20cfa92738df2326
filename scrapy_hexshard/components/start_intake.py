"""Reads the spider's start() beside the crawl and stores the requests this shard owns."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from time import monotonic
from typing import Any

from scrapy import Request, Spider
from scrapy.exceptions import CloseSpider
from scrapy.statscollectors import StatsCollector
from twisted.internet.defer import CancelledError

from scrapy_hexshard.components.event_loop import Alarm, turn
from scrapy_hexshard.components.proxy_problems import causes, proxy_problem
from scrapy_hexshard.components.request_codec import (
    LIVE_PAYLOAD,
    CannotStoreError,
    encode_request,
    key_of,
    stored_priority,
)
from scrapy_hexshard.components.work import Work
from scrapy_hexshard.errors import InvalidKeyError
from scrapy_hexshard.keys import digest
from scrapy_hexshard.sharding import digest_owner
from scrapy_hexshard.store.contract import Work as StoredWork

logger = logging.getLogger(__name__)

BATCH = 500
SLICE_SECONDS = 0.02  # a start() without a pause must not hold the event loop for longer


class StartIntake:
    """The start requests of one run: stored, or *live* where they cannot be.

    *on_request* is called with each key before it is stored, *on_change* whenever there is more.
    """

    def __init__(
        self,
        work: Work,
        spider: Spider,
        stats: StatsCollector,
        on_request: Callable[[str], None],
        on_change: Callable[[], None],
    ) -> None:
        self._items: deque[Any] = deque()  # items that start() yielded: they belong to no unit
        self.live: dict[str, Request] = {}
        self.reading = True
        self.error: Exception | None = None
        self._work = work
        self._spider = spider
        self._stats = stats
        self._on_request = on_request
        self._on_change = on_change
        self._unstored: dict[str, StoredWork] = {}
        self._storing: dict[str, StoredWork] = {}
        self._room = Alarm()
        # Where links are keys, a shard without a worker is told from one without keys by these.
        self._for_all = work.config.follow == "key"
        # Hashes, for the keys may be millions: of the key, and of the request it came with.
        self._seen: dict[int, int] = {}
        self._warned: set[str] = set()

    async def read(self, start: AsyncIterator[Any]) -> None:
        """Take in all of *start*; what it raises is kept as the error."""
        try:
            await self._read(start)
        except CancelledError:
            raise
        except CloseSpider as error:
            self._work.ending.stop(error.reason or "cancelled")
        except Exception as error:  # noqa: BLE001 - kept for the feed, which raises it in the end
            failure = _described(error)
            logger.error(  # noqa: TRY400 - the traceback follows when the feed raises it
                "%s: the keys stored so far are crawled, then this worker ends with start_error.",
                failure,
            )
            self.error = error
            if self._work.ending.reason is None:
                self._work.ending.detail = failure
        while self._storing:
            await self._room.wait()
        self.reading = False

    async def _read(self, start: AsyncIterator[Any]) -> None:
        began = monotonic()
        async for each in start:
            if isinstance(each, Request):
                self._take(each)
            else:
                self._take_item(each)
            if self._is_full():
                while self._is_full():
                    await self._room.wait()
                began = monotonic()
            elif monotonic() - began > SLICE_SECONDS:
                await turn()
                began = monotonic()

    def _is_full(self) -> bool:
        return len(self._unstored) >= BATCH or len(self._items) >= BATCH

    def take_items(self) -> Iterator[Any]:
        """The items start() has yielded, each once."""
        while self._items:
            yield self._items.popleft()
            self._room.ring()

    def _take_item(self, item: Any) -> None:
        self._items.append(item)
        self._stats.inc_value("hexshard/start_items")
        if self._work.config.items:
            self._warn_once(
                "items",
                "start() yields items. They belong to no key and go to the pipelines and feeds "
                "only, once per worker.",
            )
        self._on_change()

    def _take(self, request: Request) -> None:
        try:
            key = key_of(request)
        except InvalidKeyError as error:
            self._stats.inc_value("hexshard/invalid_keys")
            self._warn_once("invalid", f"A start request is skipped, as others will be: {error}")
            return
        shard = self._work.config.shard
        owned = digest_owner(digest(key), shard.count) == shard.index
        payload = self._payload(request, key, owned) if owned or self._for_all else None
        if payload is None:
            self._stats.inc_value("hexshard/unowned")
            return
        if not self._is_new(key, payload):
            return
        self._on_request(key)
        self._unstored[key] = StoredWork(key, payload, stored_priority(request))
        self._store()

    def _payload(self, request: Request, key: str, owned: bool) -> str | None:
        try:
            return encode_request(request, self._spider, key)
        except CannotStoreError as error:
            if not owned:
                return LIVE_PAYLOAD  # it lives in the worker that owns it, from its own start()
            self._stats.inc_value("hexshard/live_only")
            self._warn_once(
                "live",
                f"Start requests that cannot be stored live in this worker only, and start() must "
                f"yield them again in the next run: {error}.",
            )
            self.live.setdefault(key, request)
            return LIVE_PAYLOAD

    def _is_new(self, key: str, payload: str) -> bool:
        request = hash(payload)
        known = len(self._seen)
        if self._seen.setdefault(hash(key), request) != request:
            self._stats.inc_value("hexshard/differing_starts")
            self._warn_once(
                "differing",
                f"start() yields two different requests for the key {key}: the first wins.",
            )
        return len(self._seen) > known

    def _store(self) -> None:
        """Store what there is, so that a start() that pauses holds up none of it.

        What comes while a batch is on its way makes up the next one.
        """
        if self._storing or not self._unstored:
            return
        self._storing, self._unstored = self._unstored, {}
        batch = list(self._storing.values())
        stored = self._work.thread.call(lambda store: store.enqueue(batch))
        stored.addCallbacks(self._stored, self._work.ending.store_failed)

    def _stored(self, _added: int) -> None:
        self._stats.inc_value("hexshard/start_keys", len(self._storing))
        self._storing = {}
        self._store()
        self._room.ring()
        self._on_change()

    def overtaken(self, key: str) -> bool:
        """Whether start() has yielded *key*, but it was claimed before its request was stored.

        Its claim is to be given back; the request is stored again after that.
        """
        if (work := self._storing.get(key)) is not None:
            self._unstored.setdefault(key, work)
        return key in self._unstored

    def _warn_once(self, about: str, message: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            logger.warning("%s", message)


def _described(error: Exception) -> str:
    """What start() failed with; nothing of the error's own words, with who knows what in them."""
    described = f"start() failed with {type(error).__name__}"
    problem = next(filter(None, map(proxy_problem, causes(error))), None)
    return f"{described}, as its proxy failed: {problem}" if problem else described
