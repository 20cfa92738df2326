"""Holds a key back until its items are where Scrapy's feeds put them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from scrapy.crawler import Crawler

from scrapy_hexshard.components.event_loop import Alarm
from scrapy_hexshard.components.feed_batches import Batch, FeedBatches
from scrapy_hexshard.components.feed_files import FeedFiles
from scrapy_hexshard.components.feed_watch import FeedWatch
from scrapy_hexshard.units import Unit, Verdict

logger = logging.getLogger(__name__)

MANY_WAIT = 10_000
TURN_SECONDS = 1.0

Settle: TypeAlias = Callable[[Verdict], None]


@dataclass(slots=True)
class _Held:
    verdict: Verdict
    settle: Settle
    batches: set[Batch]  # those that are not stored yet


class FeedHold:
    """Lets a unit be settled once its items are in the local files of its feeds.

    With *waits* it does so once every batch with an item of it has closed and been stored. Its
    *files* are for the store's thread to press. *unit_of* gives the unit a response belongs to;
    *on_change* is called when a batch was stored, or could not be.
    """

    def __init__(
        self,
        crawler: Crawler,
        unit_of: Callable[[Any], Unit | None],
        on_change: Callable[[], None],
        *,
        waits: bool,
    ) -> None:
        self.files = FeedFiles()
        self._crawler = crawler
        self._on_change = on_change
        self._waits = waits
        batches = FeedBatches(self.files, self._batch_ended)
        self._watch = FeedWatch(crawler, unit_of, batches)
        self._held: dict[int, _Held] = {}
        self._changed = Alarm()

    def install(self) -> None:
        """Find the feeds that Scrapy has opened; raises FeedError if no item would get there."""
        self._watch.install()

    @property
    def closing(self) -> int:
        """How many keys wait for a batch that is being stored; the others' may close last."""
        if not self._held:
            return 0
        open_batches = self._watch.open_batches()
        return sum(not held.batches <= open_batches for held in self._held.values())

    def settle(self, unit: Unit, verdict: Verdict, settle: Settle) -> bool:
        """Call *settle* with the verdict on an ended *unit*, once its items are safe.

        False if that is not yet. If its items cannot be stored, the verdict becomes a failure.
        Raises FeedError if a file cannot be written.
        """
        batches = self._watch.take(unit.token)
        if not verdict.failed:
            verdict = next((_failure(batch) for batch in batches if batch.error), verdict)
        if verdict.failed:
            settle(verdict)
            return True
        if self._waits and (waiting := {batch for batch in batches if not batch.ended}):
            self._hold(unit.token, _Held(verdict, settle, waiting))
            return False
        for batch in batches:
            if batch.file is not None:
                self.files.flush(batch.file)
        settle(verdict)
        return True

    def forget(self, token: int) -> None:
        """The attempt of *token* is not settled here: its claim was lost, or is given back."""
        self._watch.take(token)
        self._held.pop(token, None)

    async def wait(self, turned: Callable[[], None]) -> bool:
        """Sleep until no key is held any more, and call *turned* at times meanwhile.

        Whether any was.
        """
        held = bool(self._held)
        while self._held:
            turned()
            await self._changed.wait(TURN_SECONDS)
        return held

    def _hold(self, token: int, held: _Held) -> None:
        self._held[token] = held
        waiting = len(self._held)
        assert self._crawler.stats is not None
        self._crawler.stats.max_value("hexshard/held_for_feeds", waiting)
        if waiting == MANY_WAIT and self._watch.has_endless:
            logger.warning(
                "%d keys wait for a feed that closes only when the crawl ends; a kill would have "
                "them all crawled again. Set FEED_EXPORT_BATCH_ITEM_COUNT, with %%(batch_time)s "
                "in the feed's URI.",
                waiting,
            )

    def _batch_ended(self, batch: Batch) -> None:
        for token in [token for token, held in self._held.items() if batch in held.batches]:
            held = self._held[token]
            held.batches.discard(batch)
            if batch.error is not None or not held.batches:
                del self._held[token]
                held.settle(held.verdict if batch.error is None else _failure(batch))
        self._changed.ring()
        self._on_change()


def _failure(batch: Batch) -> Verdict:
    return Verdict(f"feed: {type(batch.error).__name__}", failed=True)
