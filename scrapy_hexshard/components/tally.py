"""What one life of a worker has done so far, in totals, in Scrapy's stats and in the log."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from scrapy.crawler import Crawler

from scrapy_hexshard.store.contract import WORKER_DIED, Settlement
from scrapy_hexshard.units import Verdict

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Totals:
    """Counts of keys, and of the items they brought."""

    done: int = 0
    failed: int = 0  # attempts that will be repeated
    dead: int = 0
    faults: int = 0  # dead keys that no permanent outcome of the origin explains
    released: int = 0
    items: int = 0


class Tally:
    """Keeps the totals and the ``hexshard/...`` stats, and knows what was said already."""

    def __init__(self, crawler: Crawler) -> None:
        self.totals = Totals()
        self._crawler = crawler
        self._said: set[str] = set()
        self._faults: Counter[str] = Counter()

    def count(self, name: str, by: int = 1) -> None:
        """Add to the stat ``hexshard/<name>``."""
        assert self._crawler.stats is not None
        self._crawler.stats.inc_value(f"hexshard/{name}", by)

    def is_new(self, what: str) -> bool:
        """Whether this is the first call for *what*, which is then worth a word."""
        new = what not in self._said
        self._said.add(what)
        return new

    def settled(self, settlement: Settlement, verdict: Verdict, *, is_last: bool) -> None:
        """A settlement has been applied; *is_last* if its key has no attempt left."""
        if not verdict.failed:
            self._completed(settlement)
        elif verdict.permanent or is_last:
            self._gave_up(settlement, verdict)
        else:
            self.totals.failed += 1
            self.count("failed")
        # The reason why a payload is none may be another for each key.
        outcome = "payload" if _blames_payload(verdict) else verdict.outcome
        self._ended(outcome, is_fault=verdict.failed and _is_fault(verdict))

    @property
    def commonest_fault(self) -> tuple[str, int] | None:
        """The outcome of most attempts that should not have failed, and of how many, if any did."""
        return next(iter(self._faults.most_common(1)), None)

    def condemned(self, keys: Sequence[str]) -> None:
        """The store has given up *keys*, as workers died whenever they were crawled alone."""
        for key in keys:
            self.totals.dead += 1
            self.totals.faults += 1
            self.count("dead")
            self._ended(WORKER_DIED, is_fault=True)
            logger.warning("Gave up %s: %s each time it was crawled alone.", key, WORKER_DIED)

    def _ended(self, outcome: str, *, is_fault: bool) -> None:
        self.count(f"outcome/{outcome}")
        if is_fault:
            self._faults[outcome] += 1

    def _completed(self, settlement: Settlement) -> None:
        self.totals.done += 1
        self.totals.items += len(settlement.items)
        self.count("done")
        self.count("items", len(settlement.items))
        if settlement.discovered:
            self.count("links", len(settlement.discovered))

    def _gave_up(self, settlement: Settlement, verdict: Verdict) -> None:
        self.totals.dead += 1
        self.totals.faults += _is_fault(verdict)
        self.count("dead")
        # What the origin itself says is not there is no cause for alarm, and may be common.
        level = logging.INFO if verdict.permanent else logging.WARNING
        claim = settlement.claim
        logger.log(level, "Gave up %s, attempt %d: %s", claim, claim.attempt, verdict.outcome)


def _is_fault(verdict: Verdict) -> bool:
    """Whether nothing that the origin says for good explains a failure."""
    return not verdict.permanent or _blames_payload(verdict)


def _blames_payload(verdict: Verdict) -> bool:
    return verdict.outcome.startswith("payload")
