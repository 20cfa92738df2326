"""The open units of a worker: one for each claim, settled with the store when it ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from scrapy.crawler import Crawler

from scrapy_hexshard.components.ending import Ending
from scrapy_hexshard.components.engine_tap import EngineTap
from scrapy_hexshard.components.feed_files import FeedError
from scrapy_hexshard.components.feed_hold import FeedHold
from scrapy_hexshard.components.links import Links
from scrapy_hexshard.components.store_thread import StoreThread
from scrapy_hexshard.components.tally import Tally
from scrapy_hexshard.components.unit_events import UnitEvents
from scrapy_hexshard.config import Config
from scrapy_hexshard.store.contract import Claim, Settlement
from scrapy_hexshard.store.contract import Work as StoredWork
from scrapy_hexshard.units import Ledger, Unit, Verdict

logger = logging.getLogger(__name__)


class FeedListener(Protocol):
    """What a feed is told by the work it feeds."""

    def room(self) -> None:
        """A unit has ended, or the work has."""

    def changed(self) -> None:
        """The store may have something new to claim, or nothing any more."""

    def lost(self, tokens: set[int]) -> None:
        """The claims of *tokens* belong to others now."""


class OpenUnits:
    """Opens units for claims, and settles them as they end.

    *thread* gives the thread that calls the store.
    """

    def __init__(
        self,
        crawler: Crawler,
        config: Config,
        ending: Ending,
        tally: Tally,
        thread: Callable[[], StoreThread],
    ) -> None:
        self.settling = 0
        self.closed = False
        self.feed: FeedListener | None = None
        self.on_first_end: Callable[[], None] | None = None  # of a key, in this life
        self._config = config
        self._ending = ending
        self._tally = tally
        self._thread = thread
        waits = config.complete_after == "feed"
        self.links = Links(
            crawler, config.shard, tally, all_links=config.follow == "key", waits=waits
        )
        self.ledger = Ledger(self._ended)
        events = UnitEvents(crawler, self.links, tally, keeps_items=config.items)
        self.tap = EngineTap(crawler, self.ledger, events, config.permanent_http)
        self.feeds = FeedHold(crawler, self.tap.unit_of, self._room, waits=waits)
        self._claims: dict[int, Claim] = {}
        self._attempt_ended: list[Callable[[int, bool], None]] = []

    def __len__(self) -> int:
        return len(self.ledger)

    def open(self, claim: Claim) -> Unit:
        """The unit of a claim; it is settled when it ends."""
        if claim.lone:
            # If this is the one that kills its worker, the log of that worker ends here.
            logger.info("Workers died while they had %s in flight: it is crawled alone.", claim)
        self._claims[claim.token] = claim
        return self.ledger.open(claim, claim.token)

    def knows(self, token: int) -> bool:
        """Whether *token* is that of an open unit."""
        return self.ledger.get(token) is not None

    def close(self) -> None:
        """From now on nothing is fed or settled: what ends is given back with what is open."""
        self.closed = True
        self._room()

    def lost(self, tokens: list[int]) -> None:
        """Forget the units of *tokens*: their claims belong to others now."""
        logger.warning(
            "%d leases were lost to another worker of shard %s. Two workers of one shard, or a "
            "process stopped for longer than HEXSHARD_LEASE_SECONDS?",
            len(tokens),
            self._config.shard,
        )
        self._tally.count("lost", len(tokens))
        for token in tokens:
            self._claims.pop(token, None)
            self.ledger.forget(token)
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

    def _room(self) -> None:
        if self.feed is not None:
            self.feed.room()

    def _changed(self) -> None:
        if self.feed is not None:
            self.feed.changed()

    # Settling.

    def _ended(self, unit: Unit) -> None:
        claim = self._claims.pop(unit.token)
        found = self.links.found(unit.token)
        verdict = unit.verdict(empty_fails=self._config.empty == "fail" and not found)
        self._room()
        if verdict.interrupted or self.closed:
            self.feeds.forget(unit.token)
            self._forget_attempt(unit.token, verdict.failed)
            return  # closing gives it back
        try:
            settle = partial(self._settle, claim, unit, found)
            if not self.feeds.settle(unit, verdict, settle):
                self._park(claim)
        except FeedError as error:
            self._forget_attempt(unit.token, failed=True)
            self._ending.give_up(error)

    def _park(self, claim: Claim) -> None:
        parked = self._thread().park(claim)
        parked.addCallbacks(lambda _: self._changed(), self._ending.store_failed)

    def _settle(
        self, claim: Claim, unit: Unit, found: Sequence[StoredWork], verdict: Verdict
    ) -> None:
        self._forget_attempt(unit.token, verdict.failed)
        self.settling += 1
        settlement = _settlement(claim, verdict, unit, found)
        settled = self._thread().settle(settlement)
        settled.addCallbacks(
            partial(self._settled, settlement=settlement, verdict=verdict),
            self._ending.store_failed,
        )
        settled.addBoth(self._settlement_over)
        if claim.lone:
            # Nothing else is open that could fill the time until then.
            self._changed()

    def _settlement_over(self, _: object) -> None:
        self.settling -= 1
        self._changed()

    def _settled(self, applied: bool, settlement: Settlement, verdict: Verdict) -> None:
        if not applied:
            self._tally.count("stale")
            return
        is_last = self._config.retry.is_last(settlement.claim.attempt)
        self._tally.settled(settlement, verdict, is_last=is_last)
        if self._tally.is_new("end") and self.on_first_end is not None:
            self.on_first_end()


def _settlement(
    claim: Claim, verdict: Verdict, unit: Unit, found: Sequence[StoredWork]
) -> Settlement:
    if verdict.failed:
        return Settlement.fail(claim, verdict.outcome, permanent=verdict.permanent)
    return Settlement.complete(claim, verdict.outcome, items=unit.items, discovered=found)
