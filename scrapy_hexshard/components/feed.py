"""Feeds the claimed keys of a shard to the engine, as capacity allows, until none is left."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any

from scrapy.crawler import Crawler
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from scrapy_hexshard.components.event_loop import Alarm
from scrapy_hexshard.components.key_request import KeyRequests
from scrapy_hexshard.components.request_codec import holds_request, is_live
from scrapy_hexshard.components.shard_end import ShardEnd
from scrapy_hexshard.components.start_intake import StartIntake
from scrapy_hexshard.components.store_thread import Claimed
from scrapy_hexshard.components.work import Work
from scrapy_hexshard.store.contract import Claim, Settlement

logger = logging.getLogger(__name__)

POLL_SECONDS = 2.0  # how often to ask for keys that other workers of the shard hold
OTHERS_SECONDS = 0.5  # how often to ask for keys that other shards may have found
MAX_WAITING = 1000


class Feed:
    """The keys of one shard on their way from the store to the engine."""

    def __init__(self, work: Work, crawler: Crawler) -> None:
        assert crawler.spider is not None
        assert crawler.stats is not None
        self._work = work
        self._units = work.units
        self._alarm = Alarm()
        self._ready: deque[Claim] = deque()
        self._waiting: dict[str, Claim] = {}  # for the request that start() may still yield
        self._claiming = False
        self._left = False  # by the engine, which takes nothing more
        self._end = ShardEnd(work.config.shard, work.config.lease_seconds)
        self._ask_at = 0.0
        self._capacity = work.config.max_units
        self._intake = StartIntake(work, crawler.spider, crawler.stats, self._started, self.changed)
        self._requests = KeyRequests(work.ending, crawler.spider, self._intake.live)
        work.units.feed = self

    async def requests(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The requests of this shard's keys, and the items of *start*, as they can be worked on.

        It ends once nothing of the shard can become claimable any more.
        """
        reading: Deferred[None] | None = None
        try:
            # First the store: one that is refused must not cost the origin a request of start().
            if not await self._work.is_store_open():
                return
            reading = deferred_from_coro(self._read(start))
            reading.addErrback(self._reading_failed)
            while not self._work.closing:
                for item in self._intake.take_items():
                    yield item
                if self._ready and len(self._units) < self._capacity:
                    claim = self._ready.popleft()
                    unit = self._units.open(claim)
                    unit.hold()
                    if (request := self._requests.first(unit, claim)) is not None:
                        yield request
                    # Not in a finally: a feed that is thrown away leaves its unit to the closing.
                    unit.release_hold()
                    continue
                if self._is_over():
                    break
                self._refill()
                await self._alarm.wait(self._patience())
        except CancelledError:
            # So Scrapy ends a start() when it stops, but before 2.18 logs that as an error.
            if not self._work.closing:
                raise
        finally:
            if reading is not None:
                self._left = True
                reading.cancel()
            if self._work.closing:
                self._work.stopping()
        self._leave()

    def _leave(self) -> None:
        if self._work.closing:
            return
        self._work.idle = True
        if self._waiting:
            logger.error(
                "%d keys wait for start requests that could not be stored, and start() did not "
                "yield them in this run, for example %s. They stay pending.",
                len(self._waiting),
                next(iter(self._waiting)),
            )
            self._work.ending.stop("unfinished")
        elif missing := self._end.missing():
            self._shards_missing(missing)
        if self._intake.error is not None:
            self._work.ending.reason = "start_error"
            raise self._intake.error

    def _shards_missing(self, detail: str) -> None:
        logger.error(
            "%s. Their pages may have links for this shard, so it is not finished. Start all %d "
            "shards, then this one goes on.",
            detail,
            self._work.config.shard.count,
        )
        self._work.ending.stop("shards_missing", detail)

    async def _read(self, start: AsyncIterator[Any]) -> None:
        await self._intake.read(start)
        self._release_early()
        self.changed()

    def _reading_failed(self, failure: Failure) -> None:
        if not self._left:
            logger.error("Reading start() failed, so this worker stops: %r", failure.value)
            self._work.ending.stop("start_error")

    # Claiming.

    def room(self) -> None:
        """A unit has ended, or the work has."""
        self._alarm.ring()

    def changed(self) -> None:
        """The store may have something new to claim, or nothing any more."""
        self._end.forget()
        self._ask_at = 0.0
        self._alarm.ring()

    def lost(self, tokens: set[int]) -> None:
        """The claims of *tokens* belong to others now."""
        self._ready = deque(claim for claim in self._ready if claim.token not in tokens)
        for claim in [claim for claim in self._waiting.values() if claim.token in tokens]:
            del self._waiting[str(claim)]
        self.changed()

    def _refill(self) -> None:
        room = self._capacity - len(self._ready)
        if self._claiming or room <= self._capacity // 2 or self._enough_wait():
            return
        if monotonic() < self._ask_at:
            return
        self._claiming = True
        self._ask_at = monotonic() + POLL_SECONDS
        claimed = self._work.thread.claim(room, look_around=self._units.links.led_elsewhere)
        claimed.addCallbacks(self._claimed, self._claim_failed)

    def _enough_wait(self) -> bool:
        return self._intake.reading and len(self._waiting) >= MAX_WAITING

    def _claimed(self, answer: Claimed) -> None:
        self._end.claimed(answer)
        self._claiming = False
        if answer.claims:
            self._ask_at = 0.0
        elif answer.open and answer.open.next_in is not None:
            self._ask_at = monotonic() + min(max(answer.open.next_in, 0.05), POLL_SECONDS)
        elif answer.shards:
            self._ask_at = monotonic() + OTHERS_SECONDS
        for claim in answer.claims:
            self._place(claim)
        self._alarm.ring()

    def _claim_failed(self, failure: Failure) -> None:
        self._claiming = False
        self._work.ending.store_failed(failure)
        self._alarm.ring()

    def _place(self, claim: Claim) -> None:
        live = is_live(claim.payload) and claim not in self._intake.live
        early = not holds_request(claim.payload) and self._intake.reading
        waits = (live or early) and not self._requests.by_spider
        if early and self._intake.overtaken(claim):
            self._give_back(claim)
        elif waits and claim.lone and self._intake.reading:
            # While it were held here, nothing else could be claimed.
            self._give_back(claim)
            self._ask_at = monotonic() + POLL_SECONDS
        elif waits:
            self._waiting[str(claim)] = claim
        else:
            self._ready.append(claim)

    def _started(self, key: str) -> None:
        """start() yields a key: give it back if it waits, so that it gets the new request."""
        if (claim := self._waiting.pop(key, None)) is not None:
            self._give_back(claim)

    def _give_back(self, claim: Claim) -> None:
        released = self._work.thread.settle(Settlement.release(claim))
        released.addErrback(self._work.ending.store_failed)

    def _patience(self) -> float | None:
        if self._claiming or self._ready or self._enough_wait():
            return None
        return max(0.01, self._ask_at - monotonic())

    def _release_early(self) -> None:
        """start() is over, so no callback will come for keys that were stored without one."""
        early = [claim for claim in self._waiting.values() if not is_live(claim.payload)]
        for claim in early:
            self._ready.append(self._waiting.pop(str(claim)))

    def _is_over(self) -> bool:
        units = self._units
        busy = self._claiming or self._intake.reading or len(units) or units.settling
        if busy or self._ready:
            return False
        return self._end.is_reached(self._waiting.values(), units.feeds.closing)
