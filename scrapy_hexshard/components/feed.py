"""Feeds the claimed keys of a shard to the engine, as capacity allows, until none is left."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence
from time import monotonic
from typing import Any

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from scrapy_hexshard.components.event_loop import Alarm
from scrapy_hexshard.components.other_shards import Others, OtherShards
from scrapy_hexshard.components.request_codec import (
    OWN,
    PayloadIsNoRequestError,
    decode_request,
    holds_request,
    is_live,
    of_unit,
    stored_depth,
)
from scrapy_hexshard.components.start_intake import StartIntake
from scrapy_hexshard.components.store_thread import Claimed
from scrapy_hexshard.components.work import Work
from scrapy_hexshard.store.contract import Claim, OpenShard, OpenWork, Settlement
from scrapy_hexshard.units import Unit

logger = logging.getLogger(__name__)

POLL_SECONDS = 2.0  # how often to ask for keys that other workers of the shard hold
OTHERS_SECONDS = 0.5  # how often to ask for keys that other shards may have found
MAX_WAITING = 1000


class NoRequestError(Exception):
    """A key that is no URL, and nothing that builds a request for it."""


class Feed:
    """The keys of one shard on their way from the store to the engine."""

    def __init__(self, work: Work, crawler: Crawler) -> None:
        assert crawler.spider is not None
        assert crawler.stats is not None
        self._work = work
        self._spider: Spider = crawler.spider
        self._alarm = Alarm()
        self._ready: deque[Claim] = deque()
        self._waiting: dict[str, Claim] = {}  # for the request that start() may still yield
        self._claiming = False
        self._left = False  # by the engine, which takes nothing more
        self._open: OpenWork | None = None  # what was left at the last empty claim
        self._shards: Sequence[OpenShard] = ()  # at the same moment, if they matter
        self._others = OtherShards(work.config.shard.index, work.config.lease_seconds, monotonic())
        self._ask_at = 0.0
        self._capacity = work.config.max_units
        self._intake = StartIntake(work, self._spider, crawler.stats, self._started, self.changed)
        work.feed = self

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
                if self._ready and self._work.open_units < self._capacity:
                    claim = self._ready.popleft()
                    unit = self._work.open_unit(claim)
                    unit.hold()
                    request = self._request(unit, claim)
                    if request is not None:
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
        self._end()

    def _end(self) -> None:
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
            self._work.stop("unfinished")
        elif self._judge_others() is Others.MISSING:
            self._shards_missing()
        if self._intake.error is not None:
            self._work.reason = "start_error"
            raise self._intake.error

    def _shards_missing(self) -> None:
        own = self._work.config.shard.index
        others = [each for each in self._shards if each.shard != own]
        shards = ", ".join(f"shard {each.shard} ({each.keys} keys left)" for each in others)
        detail = f"No worker is at work on {shards}"
        logger.error(
            "%s. Their pages may have links for this shard, so it is not finished. Start all %d "
            "shards, then this one goes on.",
            detail,
            self._work.config.shard.count,
        )
        self._work.stop("shards_missing", detail)

    async def _read(self, start: AsyncIterator[Any]) -> None:
        await self._intake.read(start)
        self._release_early()
        self.changed()

    def _reading_failed(self, failure: Failure) -> None:
        if not self._left:
            logger.error("Reading start() failed, so this worker stops: %r", failure.value)
            self._work.stop("start_error")

    # Claiming.

    def room(self) -> None:
        """A unit has ended, or the work has."""
        self._alarm.ring()

    def changed(self) -> None:
        """The store may have something new to claim, or nothing any more."""
        self._open = None
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
        claimed = self._work.thread.claim(room, look_around=self._work.links.led_elsewhere)
        claimed.addCallbacks(self._claimed, self._claim_failed)

    def _enough_wait(self) -> bool:
        return self._intake.reading and len(self._waiting) >= MAX_WAITING

    def _claimed(self, answer: Claimed) -> None:
        claims, self._open, self._shards = answer
        self._claiming = False
        if claims:
            self._ask_at = 0.0
        elif self._open and self._open.next_in is not None:
            self._ask_at = monotonic() + min(max(self._open.next_in, 0.05), POLL_SECONDS)
        elif self._shards:
            self._ask_at = monotonic() + OTHERS_SECONDS
        for claim in claims:
            self._place(claim)
        self._alarm.ring()

    def _claim_failed(self, failure: Failure) -> None:
        self._claiming = False
        self._work.store_failed(failure)
        self._alarm.ring()

    def _place(self, claim: Claim) -> None:
        live = is_live(claim.payload) and claim not in self._intake.live
        early = not holds_request(claim.payload) and self._intake.reading
        waits = (live or early) and not hasattr(self._spider, "request_for_key")
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
        released.addErrback(self._work.store_failed)

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
        work = self._work
        busy = self._claiming or self._intake.reading or work.open_units or work.settling
        if busy or self._ready or self._open is None:
            return False
        # What is parked, here or by another worker of the shard, waits for a feed that may close no
        # sooner than its worker ends.
        left = self._open.running - self._open.parked + work.feeds.closing + self._open.failed
        if not self._waiting:
            over = left + self._open.pending == 0
            return over and self._judge_others() is not Others.AT_WORK
        # As long as these wait, what is pending are suspects that cannot be had; and if one of
        # these is a suspect itself, nothing can. Other shards may be in the same state, so that to
        # wait for them might be for ever.
        return left <= len(self._waiting) or any(claim.lone for claim in self._waiting.values())

    def _judge_others(self) -> Others:
        """What other shards do; of interest only where pages may bring keys of other shards."""
        return self._others.judge(self._shards, monotonic())

    # Requests.

    def _request(self, unit: Unit, claim: Claim) -> Request | None:
        try:
            request = self._build(claim)
        except PayloadIsNoRequestError as error:
            unit.fail(f"payload: {error}", permanent=True)
        except NoRequestError:
            unit.interrupted = True
            logger.error(  # noqa: TRY400 - a traceback would say nothing more
                "The key %s is no URL, and the spider has no request_for_key(key, payload) to "
                "build a request for it. Add one; the key stays pending.",
                claim,
            )
            self._work.stop("no_request")
        except Exception as error:
            logger.exception("request_for_key failed for %s", claim)
            unit.fail(f"spider: {type(error).__name__}")
        else:
            request = of_unit(request, claim.token)
            request.meta[OWN] = True
            return request
        return None

    def _build(self, claim: Claim) -> Request:
        if (build := getattr(self._spider, "request_for_key", None)) is not None:
            payload = json.loads(claim.payload or "null")
            stored = holds_request(claim.payload)
            request = build(str(claim), None if stored else payload)
            if not isinstance(request, Request):
                raise TypeError(f"request_for_key returned {type(request).__name__}, no Request")
            if stored and (depth := stored_depth(payload)) is not None:
                request.meta.setdefault("depth", depth)
            return request
        if is_live(claim.payload):
            return self._intake.live[claim].copy()
        if claim.payload is not None:
            return decode_request(claim.payload, self._spider, claim)
        try:
            # As Scrapy's own start(): what is asked for by name is not a duplicate.
            return Request(str(claim), dont_filter=True)
        except ValueError:
            raise NoRequestError from None
