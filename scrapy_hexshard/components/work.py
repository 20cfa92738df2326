"""A worker's work on its store, from the opening of it to the closing."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Mapping
from dataclasses import asdict
from time import monotonic

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.utils.defer import maybe_deferred_to_future

from scrapy_hexshard.components.deadlines import Deadlines
from scrapy_hexshard.components.ending import Ending
from scrapy_hexshard.components.engine_state import EngineState
from scrapy_hexshard.components.open_units import OpenUnits
from scrapy_hexshard.components.store_thread import StoreThread
from scrapy_hexshard.components.tally import Tally
from scrapy_hexshard.config import Config
from scrapy_hexshard.errors import HexShardError
from scrapy_hexshard.store import open_store
from scrapy_hexshard.store.contract import State, WorkStore

logger = logging.getLogger(__name__)

EXTENT_SECONDS = 5.0
FORCED_STOP_SECONDS = 5.0  # how long a forced stop may take to give its claims back


class Work:
    """The life of one crawl's work: its store, its open units, and why it ended."""

    def __init__(self, crawler: Crawler, config: Config) -> None:
        self.config = config
        self.idle = False  # set by the feed: nothing is left to claim or to wait for
        self._crawler = crawler
        self._state = EngineState(crawler)
        self._tally = Tally(crawler)
        self.ending = Ending(crawler, self._state, self._tally)
        self.units = OpenUnits(crawler, config, self.ending, self._tally, lambda: self.thread)
        self._deadlines = Deadlines(
            self._state, self.units.ledger, self.ending, timeout=config.unit_timeout
        )
        self._extent: dict[str, int] = {}
        self._extent_at = 0.0
        self._thread: StoreThread | None = None

    def open(self) -> None:
        """Start to count; the store is opened by the first call that needs it."""
        self.units.tap.install()

    @property
    def thread(self) -> StoreThread:
        """The thread that calls the store, started on first use."""
        if self._thread is None:
            self._thread = StoreThread(
                self._open_store,
                lease_seconds=self.config.lease_seconds,
                patience=self.config.unit_timeout,
                before_completing=self.units.feeds.files.press,
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
            self.units.feeds.install()
            others = await maybe_deferred_to_future(self.thread.call(self._begin))
        except HexShardError as error:
            self.ending.give_up(error)
            return False
        if others:
            self._tally.count("companions", others)
            logger.warning(
                "Other workers of shard %s work on this store, too: %d. No key is crawled twice "
                "for that, but the site is asked more often than you have set. Was it started "
                "twice?",
                self.config.shard,
                others,
            )
        return True

    def _begin(self, store: WorkStore) -> int:
        store.heartbeat()
        return store.companions(self.config.lease_seconds)

    @property
    def closing(self) -> bool:
        """Whether no more keys may be fed."""
        return self.units.closed or self._state.closing

    def sweep(self) -> None:
        """Once a second or so: show that the reactor turns, and look for what hangs."""
        if self._thread is None or self.units.closed:
            return
        self._thread.turned()
        if self._state.closing:
            self.stopping()
        else:
            self._deadlines.end_overdue()
            self._look_at_extent()
        self._deadlines.leave_what_hangs(idle=self.idle)

    def stopping(self) -> None:
        """Tell the store that this worker was asked to stop."""
        if self._thread is not None and self._tally.is_new("stopping"):
            self._thread.call(lambda store: store.stopping()).addErrback(self.ending.store_failed)

    async def close(self, reason: str) -> None:
        """Give back what is held and leave the store."""
        if reason == "finished" and not self.idle:
            self._not_all_was_fed()
        self.units.close()
        if self._thread is None:
            self.units.feeds.files.release()
            return
        await self._settle_held(reason)
        self._thread.turned()
        closed = self._thread.close(self.ending.reason or reason)
        try:
            self._tally.totals.released = await maybe_deferred_to_future(closed)
        except HexShardError as error:
            self.ending.report_store(error)
        # Not before: a second signal may end the process while the thread is still at it.
        atexit.unregister(self._close_now)
        self.units.feeds.files.release()
        self._tally.count("released", self._tally.totals.released)
        stats = self._crawler.stats
        assert stats is not None
        stats.set_value("hexshard/gate_wait_seconds", self._thread.gate_wait_seconds)

    def _not_all_was_fed(self) -> None:
        if self.ending.reason is None:
            self.ending.reason = "unfinished"
            logger.error(
                "Something ended the feeding of this worker before its shard was finished, such as "
                "the process_start() of another spider middleware. The keys left stay pending."
            )

    async def _settle_held(self, reason: str) -> None:
        """Settle the keys that have waited for the feeds which close now."""
        thread = self.thread
        if not await self.units.feeds.wait(thread.turned):
            return
        try:
            # After the settlements, as it comes later.
            left = await maybe_deferred_to_future(thread.call(lambda store: store.open_work()))
        except HexShardError as error:
            self.ending.report_store(error)
            return
        if reason == "finished" and self.ending.reason is None and left:
            self.ending.reason = "unfinished"
            logger.error(
                "%d keys of this shard are left now that its feeds have closed: a feed could not "
                "be stored, or another worker of the shard is at work. Start again to go on.",
                left.pending + left.running + left.failed,
            )

    def _close_now(self) -> None:
        assert self._thread is not None
        self._thread.close("shutdown")
        self._thread.join(FORCED_STOP_SECONDS)

    def _lost(self, tokens: list[int]) -> None:
        self._deadlines.lost()
        self.units.lost(tokens)

    def report(self) -> dict[str, int]:
        """The totals, for the launcher."""
        return {**asdict(self._tally.totals), "running": len(self.units), **self._extent}

    @property
    def commonest_fault(self) -> tuple[str, int] | None:
        """Why most attempts failed that should not have, and how many, for the launcher."""
        return self._tally.commonest_fault

    def _look_at_extent(self) -> None:
        """Learn from time to time how much of the shard is left, for the launcher to show."""
        if monotonic() >= self._extent_at:
            self._extent_at = monotonic() + EXTENT_SECONDS
            counted = self.thread.call(lambda store: store.counts())
            counted.addCallbacks(self._extent_seen, self.ending.store_failed)

    def _extent_seen(self, counts: Mapping[State, int]) -> None:
        keys = sum(counts.values())
        self._extent = {"keys": keys, "open": keys - counts[State.DONE] - counts[State.DEAD]}


def feeds_from_store(spider: Spider) -> bool:
    """Whether *spider* crawls, rather than serving a command such as ``scrapy fetch``.

    Those commands put a start() of their own in the place of the spider's.
    """
    return not getattr(spider.start, "__module__", "").startswith("scrapy.commands.")
