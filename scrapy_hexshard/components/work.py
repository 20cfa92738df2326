"""A worker's work on its store: it opens units for claims and settles them as they end."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from time import monotonic
from typing import Any, Protocol

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.serialize import ScrapyJSONEncoder
from twisted.python.failure import Failure

from scrapy_hexshard.components.engine_state import EngineState
from scrapy_hexshard.components.engine_tap import EngineTap
from scrapy_hexshard.components.store_thread import StoreThread
from scrapy_hexshard.config import Config
from scrapy_hexshard.errors import HexShardError
from scrapy_hexshard.store import open_store
from scrapy_hexshard.store.contract import WORKER_DIED, Claim, Settlement, State, WorkStore
from scrapy_hexshard.units import Ledger, Unit, Verdict

logger = logging.getLogger(__name__)

MANY_REQUESTS = 1000
EXTENT_SECONDS = 5.0
FORCED_STOP_SECONDS = 5.0  # how long a forced stop may take to give its claims back


@dataclass(slots=True)
class Totals:
    """What one life of a worker has done so far."""

    done: int = 0
    failed: int = 0  # attempts that will be repeated
    dead: int = 0
    faults: int = 0  # dead keys that no permanent outcome of the origin explains
    released: int = 0
    items: int = 0


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
        self.totals = Totals()
        self.reason: str | None = None  # overrides Scrapy's: Scrapy would call it finished
        self.settling = 0
        self.idle = False  # set by the feed: nothing is left to claim or to wait for
        self.feed: FeedListener | None = None
        self._crawler = crawler
        self._ledger = Ledger(self._unit_ended)
        self._state = EngineState(crawler, self._ledger)
        self._tap = EngineTap(crawler, self._ledger, self, self._state, config.permanent_http)
        self._claims: dict[int, Claim] = {}
        self._attempt_ended: list[Callable[[int, bool], None]] = []
        self._encoder = ScrapyJSONEncoder()
        self._warned: set[str] = set()
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
                on_lost=self._lost,
                on_condemned=self._condemned,
            )
            self._thread.start()
        return self._thread

    def _open_store(self) -> WorkStore:
        assert self.config.store is not None
        spider = self._crawler.spider
        assert spider is not None
        location = self.config.store.replace("%(spider)s", spider.name)
        store = open_store(location, self.config.shard, policy=self.config.retry)
        # A forced stop skips spider_closed, but not this. What is registered last runs first, and
        # an open store has itself closed at exit.
        atexit.register(self._close_now)
        store.bind_spider(spider.name)
        return store

    async def is_store_open(self) -> bool:
        """Open the store; if that fails, say why and stop."""
        try:
            await maybe_deferred_to_future(self.thread.call(lambda store: store.heartbeat()))
        except HexShardError as error:
            self._report_store(error)
            self.stop("store_error")
            return False
        return True

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
        if self._thread is not None and self._once("stopping"):
            self._thread.call(lambda store: store.stopping()).addErrback(self.store_failed)

    def stop(self, reason: str) -> None:
        """Close the spider for a reason that is not *finished*."""
        self.reason = self.reason or reason
        self._close_spider(reason)

    async def close(self, reason: str) -> None:
        """Give back what is held and leave the store."""
        self._closed = True
        if reason == "finished" and not self.idle:
            self._not_all_was_fed()
        if self.feed is not None:
            self.feed.room()
        if self._thread is None:
            return
        self._thread.turned()
        closed = self._thread.close(self.reason or reason)
        try:
            self.totals.released = await maybe_deferred_to_future(closed)
        except HexShardError as error:
            self._report_store(error)
        # Not before: a second signal may end the process while the thread is still at it.
        atexit.unregister(self._close_now)
        self._count("released", self.totals.released)
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

    def _unit_ended(self, unit: Unit) -> None:
        claim = self._claims.pop(unit.token)
        verdict = unit.verdict(empty_fails=self.config.empty == "fail")
        self._forget_attempt(unit.token, verdict.failed)
        if self.feed is not None:
            self.feed.room()
        if verdict.interrupted or self._closed:
            return  # closing gives it back
        self.settling += 1
        settled = self.thread.settle(_settlement(claim, verdict, unit))
        settled.addCallbacks(
            partial(self._settled, claim=claim, verdict=verdict, unit=unit), self.store_failed
        )
        settled.addBoth(self._settlement_over)

    def _settlement_over(self, _: object) -> None:
        self.settling -= 1
        if self.feed is not None:
            self.feed.changed()

    def _settled(self, applied: bool, claim: Claim, verdict: Verdict, unit: Unit) -> None:
        if not applied:
            self._count("stale")
            return
        totals = self.totals
        if not verdict.failed:
            totals.done += 1
            totals.items += len(unit.items)
            self._count("done")
            self._count("items", len(unit.items))
        elif verdict.permanent or self.config.retry.is_last(claim.attempt):
            totals.dead += 1
            totals.faults += not verdict.permanent or _blames_payload(verdict)
            self._count("dead")
            # What the origin itself says is not there is no cause for alarm, and may be common.
            level = logging.INFO if verdict.permanent else logging.WARNING
            logger.log(level, "Gave up %s, attempt %d: %s", claim, claim.attempt, verdict.outcome)
        else:
            totals.failed += 1
            self._count("failed")
        # The reason why a payload is none may be another for each key.
        self._count(f"outcome/{'payload' if _blames_payload(verdict) else verdict.outcome}")

    def _condemned(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.totals.dead += 1
            self.totals.faults += 1
            self._count("dead")
            self._count(f"outcome/{WORKER_DIED}")
            logger.warning("Gave up %s: %s each time it was crawled alone.", key, WORKER_DIED)

    def _lost(self, tokens: list[int]) -> None:
        logger.warning(
            "%d leases were lost to another worker of shard %s. Two workers of one shard, or a "
            "process stopped for longer than HEXSHARD_LEASE_SECONDS?",
            len(tokens),
            self.config.shard,
        )
        self._count("lost", len(tokens))
        # Their requests do not hang for that: they may well end by themselves.
        self._patient_until = monotonic() + self.config.unit_timeout
        for token in tokens:
            self._claims.pop(token, None)
            self._ledger.forget(token)
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
        self._report_store(failure.value)
        self.stop("store_error")

    def _report_store(self, error: BaseException | None) -> None:
        self.reason = self.reason or "store_error"
        if self._once("store failed"):
            logger.error("The store failed, so this worker stops: %s", error)

    def knows(self, token: int) -> bool:
        """Whether *token* is that of an open unit."""
        return self._ledger.get(token) is not None

    # What the tap reports.

    def late(self, what: str) -> None:
        self._count(f"late/{what}")

    def filtered(self, unit: Unit) -> None:
        self._count("filtered")
        own = self._crawler.settings["DUPEFILTER_CLASS"]
        if "UnitDupeFilter" not in str(own) and self._once("filtered"):
            logger.warning(
                "DUPEFILTER_CLASS filtered a request of %s. It serves all keys at once, so a key "
                "may miss a page that another one has requested; see hexshard/filtered.",
                unit.key,
            )

    def item_scraped(self, unit: Unit, item: Any) -> None:
        if not self.config.items:
            return
        try:
            unit.items.append(self._encoder.encode(item))
        except (TypeError, ValueError, RecursionError) as error:
            logger.warning("An item of %s cannot be stored as JSON: %s", unit.key, error)
            unit.fail(f"item: {type(error).__name__}")

    def requested(self, unit: Unit) -> None:
        if unit.requests == MANY_REQUESTS and self._once("many requests"):
            logger.warning(
                "%s has made %d requests and is one unit of work: a failure repeats them all, and "
                "one worker makes them all. Where each page can stand alone, make it a key: yield "
                "it from start(), or load it.",
                unit.key,
                MANY_REQUESTS,
            )

    def _once(self, what: str) -> bool:
        new = what not in self._warned
        self._warned.add(what)
        return new

    def _count(self, name: str, by: int = 1) -> None:
        assert self._crawler.stats is not None
        self._crawler.stats.inc_value(f"hexshard/{name}", by)

    def report(self) -> dict[str, int]:
        """The totals, for the launcher."""
        return {**asdict(self.totals), "running": self.open_units, **self._extent}

    def _look_at_extent(self) -> None:
        """Learn from time to time how much of the shard is left, for the launcher to show."""
        if monotonic() >= self._extent_at:
            self._extent_at = monotonic() + EXTENT_SECONDS
            counted = self.thread.call(lambda store: store.counts())
            counted.addCallbacks(self._extent_seen, self.store_failed)

    def _extent_seen(self, counts: Mapping[State, int]) -> None:
        keys = sum(counts.values())
        self._extent = {"keys": keys, "open": keys - counts[State.DONE] - counts[State.DEAD]}


def _settlement(claim: Claim, verdict: Verdict, unit: Unit) -> Settlement:
    if verdict.failed:
        return Settlement.fail(claim, verdict.outcome, permanent=verdict.permanent)
    return Settlement.complete(claim, verdict.outcome, items=unit.items)


def _blames_payload(verdict: Verdict) -> bool:
    return verdict.outcome.startswith("payload")


def _log_failure(failure: Failure) -> None:
    logger.error("Closing the spider failed: %s", failure.getErrorMessage())


def feeds_from_store(spider: Spider) -> bool:
    """Whether *spider* crawls, rather than serving a command such as ``scrapy fetch``.

    Those commands put a start() of their own in the place of the spider's.
    """
    return not getattr(spider.start, "__module__", "").startswith("scrapy.commands.")
