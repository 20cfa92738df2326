"""A worker's work on its store: it opens units for claims and settles them as they end."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from time import monotonic
from typing import Protocol

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.python.failure import Failure

from scrapy_hexshard.components.engine_state import EngineState
from scrapy_hexshard.components.engine_tap import EngineTap
from scrapy_hexshard.components.feed_files import FeedError
from scrapy_hexshard.components.feed_hold import FeedHold
from scrapy_hexshard.components.links import Links
from scrapy_hexshard.components.store_thread import StoreThread
from scrapy_hexshard.components.tally import Tally
from scrapy_hexshard.components.unit_events import UnitEvents
from scrapy_hexshard.config import Config
from scrapy_hexshard.errors import HexShardError
from scrapy_hexshard.store import open_store
from scrapy_hexshard.store.contract import Claim, Settlement, State, WorkStore
from scrapy_hexshard.store.contract import Work as StoredWork
from scrapy_hexshard.units import Ledger, Unit, Verdict

logger = logging.getLogger(__name__)

EXTENT_SECONDS = 5.0
FORCED_STOP_SECONDS = 5.0  # how long a forced stop may take to give its claims back


class FeedListener(Protocol):
    """What a feed is told by the work it feeds."""

    def room(self) -> None:
        """A unit has ended, or the work has."""

    def changed(self) -> None:
        """The store may have something new to claim, or nothing any more."""

    def lost(self, tokens: set[int]) -> None:
        """The claims of *tokens* belong to others now."""


class Work:
    """The claims, units and settlements of one crawl, and why it ended if not of itself."""

    def __init__(self, crawler: Crawler, config: Config) -> None:
        self.config = config
        self.reason: str | None = None  # overrides Scrapy's: Scrapy would call it finished
        self.detail: str | None = None  # what else to tell the launcher of it
        self.settling = 0
        self.idle = False  # set by the feed: nothing is left to claim or to wait for
        self.feed: FeedListener | None = None
        self.on_first_end: Callable[[], None] | None = None  # of a key, in this life
        self._crawler = crawler
        self._ledger = Ledger(self._unit_ended)
        self._state = EngineState(crawler, self._ledger)
        self._tally = Tally(crawler)
        self.links = Links(
            crawler,
            config.shard,
            self._tally,
            all_links=config.follow == "key",
            waits=config.complete_after == "feed",
        )
        events = UnitEvents(crawler, self.links, self._tally, keeps_items=config.items)
        self._tap = EngineTap(crawler, self._ledger, events, config.permanent_http)
        waits = config.complete_after == "feed"
        self.feeds = FeedHold(crawler, self._tap.unit_of, self._room, waits=waits)
        self._claims: dict[int, Claim] = {}
        self._attempt_ended: list[Callable[[int, bool], None]] = []
        self._extent: dict[str, int] = {}
        self._extent_at = 0.0
        self._thread: StoreThread | None = None
        self._closed = False
        self._patient_until = 0.0

    # Life.

    def open(self) -> None:
        """Start to count; the store is opened by the first call that needs it."""
        self._tap.install()

    @property
    def thread(self) -> StoreThread:
        """The thread that calls the store, started on first use."""
        if self._thread is None:
            self._thread = StoreThread(
                self._open_store,
                lease_seconds=self.config.lease_seconds,
                patience=self.config.unit_timeout,
                before_completing=self.feeds.files.press,
                on_lost=self._lost,
                on_condemned=self._tally.condemned,
            )
            self._thread.start()
        return self._thread

    def _open_store(self) -> WorkStore:
        spider = self._crawler.spider
        assert spider is not None
        location = self.config.store_of(spider.name)
        assert location is not None
        store = open_store(location, self.config.shard, policy=self.config.retry)
        # A forced stop skips spider_closed, but not this. What is registered last runs first, and
        # an open store has itself closed at exit.
        atexit.register(self._close_now)
        store.bind_spider(spider.name)
        return store

    async def is_store_open(self) -> bool:
        """Open the store; if that fails, or nothing could be completed, say why and stop."""
        try:
            self.feeds.install()
            others = await maybe_deferred_to_future(self.thread.call(self._begin))
        except FeedError as error:
            self._feed_failed(error)
            return False
        except HexShardError as error:
            self._report_store(error)
            self.stop("store_error")
            return False
        if others:
            self._tally.count("companions", others)
            logger.warning(
                "%d other workers of shard %s work on this store, too. No key is crawled twice for "
                "that, but the site is asked more often than you have set. Was it started twice?",
                others,
                self.config.shard,
            )
        return True

    def _begin(self, store: WorkStore) -> int:
        store.heartbeat()
        return store.companions(self.config.lease_seconds)

    @property
    def closing(self) -> bool:
        """Whether no more keys may be fed."""
        return self._closed or self._state.closing

    @property
    def open_units(self) -> int:
        """Units that have not ended."""
        return len(self._ledger)

    def sweep(self) -> None:
        """Once a second or so: show that the reactor turns, and look for what hangs."""
        if self._thread is None or self._closed:
            return
        self._thread.turned()
        if self._state.closing:
            self.stopping()
        else:
            active = self._state.active_tokens()
            for unit in self._ledger.end_overdue(active, monotonic(), self.config.unit_timeout):
                logger.warning("%s made no progress for HEXSHARD_UNIT_TIMEOUT.", unit.key)
            self._look_at_extent()
        self._leave_what_hangs()

    def stopping(self) -> None:
        """Tell the store that this worker was asked to stop."""
        if self._thread is not None and self._tally.is_new("stopping"):
            self._thread.call(lambda store: store.stopping()).addErrback(self.store_failed)

    def stop(self, reason: str, detail: str | None = None) -> None:
        """Close the spider for a reason that is not *finished*."""
        if self.reason is None:
            self.reason, self.detail = reason, detail
        self._close_spider(reason)

    async def close(self, reason: str) -> None:
        """Give back what is held and leave the store."""
        self._closed = True
        if reason == "finished" and not self.idle:
            self._not_all_was_fed()
        self._room()
        if self._thread is None:
            self.feeds.files.release()
            return
        await self._settle_held(reason)
        self._thread.turned()
        closed = self._thread.close(self.reason or reason)
        try:
            self._tally.totals.released = await maybe_deferred_to_future(closed)
        except HexShardError as error:
            self._report_store(error)
        # Not before: a second signal may end the process while the thread is still at it.
        atexit.unregister(self._close_now)
        self.feeds.files.release()
        self._tally.count("released", self._tally.totals.released)
        stats = self._crawler.stats
        assert stats is not None
        stats.set_value("hexshard/gate_wait_seconds", self._thread.gate_wait_seconds)

    def _not_all_was_fed(self) -> None:
        if self.reason is None:
            self.reason = "unfinished"
            logger.error(
                "Something ended the feeding of this worker before its shard was finished, such as "
                "the process_start() of another spider middleware. The keys left stay pending."
            )

    async def _settle_held(self, reason: str) -> None:
        """Settle the keys that have waited for the feeds which close now."""
        thread = self.thread
        if not await self.feeds.wait(thread.turned):
            return
        try:
            # After the settlements, as it comes later.
            left = await maybe_deferred_to_future(thread.call(lambda store: store.open_work()))
        except HexShardError as error:
            self._report_store(error)
            return
        if reason == "finished" and self.reason is None and left:
            self.reason = "unfinished"
            logger.error(
                "%d keys of this shard are left now that its feeds have closed: a feed could not "
                "be stored, or another worker of the shard is at work. Start again to go on.",
                left.pending + left.running + left.failed,
            )

    def _close_now(self) -> None:
        assert self._thread is not None
        self._thread.close("shutdown")
        self._thread.join(FORCED_STOP_SECONDS)

    def _close_spider(self, reason: str) -> None:
        engine = self._crawler.engine
        if engine is None or engine.spider is None or self._state.closing:
            return
        deferred_from_coro(engine.close_spider_async(reason=reason)).addErrback(_log_failure)

    def _leave_what_hangs(self) -> None:
        """A hanging callback would keep Scrapy, and so this worker, from ever ending."""
        if not self._state.only_abandoned_left():
            return
        if self._state.closing:
            self._state.let_go()
        elif self.idle or (self._state.full and monotonic() > self._patient_until):
            self.reason = self.reason or (None if self.idle else "stuck")
            self._close_spider(self.reason or "finished")
            self._state.let_go()

    # Units.

    def open_unit(self, claim: Claim) -> Unit:
        """The unit of a claim; it is settled when it ends."""
        if claim.lone:
            # If this is the one that kills its worker, the log of that worker ends here.
            logger.info("Workers died while they had %s in flight: it is crawled alone.", claim)
        self._claims[claim.token] = claim
        return self._ledger.open(claim, claim.token)

    def _room(self) -> None:
        if self.feed is not None:
            self.feed.room()

    def _unit_ended(self, unit: Unit) -> None:
        claim = self._claims.pop(unit.token)
        found = self.links.found(unit.token)
        verdict = unit.verdict(empty_fails=self.config.empty == "fail" and not found)
        self._room()
        if verdict.interrupted or self._closed:
            self.feeds.forget(unit.token)
            self._forget_attempt(unit.token, verdict.failed)
            return  # closing gives it back
        try:
            settle = partial(self._settle, claim, unit, found)
            if not self.feeds.settle(unit, verdict, settle):
                self._park(claim)
        except FeedError as error:
            self._forget_attempt(unit.token, failed=True)
            self._feed_failed(error)

    def _park(self, claim: Claim) -> None:
        parked = self.thread.park(claim)
        parked.addCallbacks(lambda _: self._changed(), self.store_failed)

    def _settle(
        self, claim: Claim, unit: Unit, found: Sequence[StoredWork], verdict: Verdict
    ) -> None:
        self._forget_attempt(unit.token, verdict.failed)
        self.settling += 1
        settlement = _settlement(claim, verdict, unit, found)
        settled = self.thread.settle(settlement)
        settled.addCallbacks(
            partial(self._settled, settlement=settlement, verdict=verdict), self.store_failed
        )
        settled.addBoth(self._settlement_over)
        if claim.lone:
            # Nothing else is open that could fill the time until then.
            self._changed()

    def _settlement_over(self, _: object) -> None:
        self.settling -= 1
        self._changed()

    def _changed(self) -> None:
        if self.feed is not None:
            self.feed.changed()

    def _settled(self, applied: bool, settlement: Settlement, verdict: Verdict) -> None:
        if not applied:
            self._tally.count("stale")
            return
        is_last = self.config.retry.is_last(settlement.claim.attempt)
        self._tally.settled(settlement, verdict, is_last=is_last)
        if self._tally.is_new("end") and self.on_first_end is not None:
            self.on_first_end()

    def _lost(self, tokens: list[int]) -> None:
        logger.warning(
            "%d leases were lost to another worker of shard %s. Two workers of one shard, or a "
            "process stopped for longer than HEXSHARD_LEASE_SECONDS?",
            len(tokens),
            self.config.shard,
        )
        self._tally.count("lost", len(tokens))
        # Their requests do not hang for that: they may well end by themselves.
        self._patient_until = monotonic() + self.config.unit_timeout
        for token in tokens:
            self._claims.pop(token, None)
            self._ledger.forget(token)
            self.feeds.forget(token)
            self.links.found(token)
            self._forget_attempt(token, failed=True)
        if self.feed is not None:
            self.feed.lost(set(tokens))

    def on_attempt_end(self, listener: Callable[[int, bool], None]) -> None:
        """Call *listener* with the token, and whether it failed, whenever an attempt has ended."""
        self._attempt_ended.append(listener)

    def _forget_attempt(self, token: int, failed: bool) -> None:
        for listener in self._attempt_ended:
            listener(token, failed)

    def store_failed(self, failure: Failure) -> None:
        """Say once what is wrong with the store, and stop: nothing can be claimed or settled."""
        if isinstance(failure.value, FeedError):
            self._feed_failed(failure.value)
            return
        self._report_store(failure.value)
        self.stop("store_error")

    def _feed_failed(self, error: FeedError) -> None:
        if self._tally.is_new("feed failed"):
            logger.error("No key can be completed, so this worker stops: %s", error)
        self.stop("feed_error", str(error))

    def _report_store(self, error: BaseException | None) -> None:
        if self.reason is None:
            self.reason, self.detail = "store_error", str(error)
        if self._tally.is_new("store failed"):
            logger.error("The store failed, so this worker stops: %s", error)

    def knows(self, token: int) -> bool:
        """Whether *token* is that of an open unit."""
        return self._ledger.get(token) is not None

    def report(self) -> dict[str, int]:
        """The totals, for the launcher."""
        return {**asdict(self._tally.totals), "running": self.open_units, **self._extent}

    @property
    def commonest_fault(self) -> tuple[str, int] | None:
        """Why most attempts failed that should not have, and how many, for the launcher."""
        return self._tally.commonest_fault

    def _look_at_extent(self) -> None:
        """Learn from time to time how much of the shard is left, for the launcher to show."""
        if monotonic() >= self._extent_at:
            self._extent_at = monotonic() + EXTENT_SECONDS
            counted = self.thread.call(lambda store: store.counts())
            counted.addCallbacks(self._extent_seen, self.store_failed)

    def _extent_seen(self, counts: Mapping[State, int]) -> None:
        keys = sum(counts.values())
        self._extent = {"keys": keys, "open": keys - counts[State.DONE] - counts[State.DEAD]}


def _settlement(
    claim: Claim, verdict: Verdict, unit: Unit, found: Sequence[StoredWork]
) -> Settlement:
    if verdict.failed:
        return Settlement.fail(claim, verdict.outcome, permanent=verdict.permanent)
    return Settlement.complete(claim, verdict.outcome, items=unit.items, discovered=found)


def _log_failure(failure: Failure) -> None:
    logger.error("Closing the spider failed: %s", failure.getErrorMessage())


def feeds_from_store(spider: Spider) -> bool:
    """Whether *spider* crawls, rather than serving a command such as ``scrapy fetch``.

    Those commands put a start() of their own in the place of the spider's.
    """
    return not getattr(spider.start, "__module__", "").startswith("scrapy.commands.")
