"""Whether, and when, a worker that failed is started again. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from scrapy_hexshard.launcher.verdict import Life

FIRST_DELAY = 0.25
MAX_BOOT_FAILURES = 3
NO_REQUEST = "no_request"
SHARDS_MISSING = "shards_missing"
# A life that lasted longer was no failure to boot, even if it never said that it opened a spider.
BOOT_SECONDS = 60.0


class Peer(Protocol):
    """What is looked at of another worker of the same run."""

    lives: list[Life]

    @property
    def active(self) -> bool:
        """Whether it runs, or is to be started."""


class Restarts:
    """Decides on the restarts of one worker.

    *allowed* lives in a row may settle nothing before it is given up; 0 means no restart at all,
    but for a life that was stopped because it stalled: it always has one chance more.
    The delay doubles with each of them, up to *max_delay* seconds.
    """

    def __init__(
        self, allowed: int, max_delay: float, jitter: Callable[[], float] = random.random
    ) -> None:
        self._allowed = allowed
        self._max_delay = max_delay
        self._jitter = jitter
        self._fruitless = 0
        self._boot_failures = 0
        self.hopeless: str | None = None  # why no restart can mend what ended the last life

    def delay_after(self, life: Life, others: Sequence[Peer] = ()) -> float | None:
        """Seconds to wait before the worker's next life, or None if there is to be none.

        *others* are the other workers of the run.
        """
        self._count(life)
        allowed = max(self._allowed, int(life.stalled))
        if life.succeeded or life.told_to_stop or allowed == 0:
            return None
        self.hopeless = self._why_hopeless(life, others)
        if self.hopeless or self._fruitless > allowed:
            return None
        delay = min(FIRST_DELAY * 2.0 ** min(self._fruitless, 64), self._max_delay)
        return delay * (0.5 + 0.5 * self._jitter())

    def _why_hopeless(self, life: Life, others: Sequence[Peer]) -> str | None:
        if self._boot_failures >= MAX_BOOT_FAILURES:
            return "it fails to boot"
        if life.reason == NO_REQUEST:
            return "it would meet the same key again"
        if life.reason == SHARDS_MISSING and _nobody_comes(others):
            return "nobody is left in this run to crawl the missing shards"
        return None

    def _count(self, life: Life) -> None:
        self._fruitless = 0 if life.totals.settled else self._fruitless + 1
        self._boot_failures = self._boot_failures + 1 if _failed_to_boot(life) else 0


def _failed_to_boot(life: Life) -> bool:
    ended_by_itself = life.returncode is None or life.returncode > 0
    return ended_by_itself and not life.reported and life.seconds < BOOT_SECONDS


def _nobody_comes(others: Sequence[Peer]) -> bool:
    """Whether shards that *others* should crawl stay as they are until the end of the run."""
    # A launcher of one may have its like beside it, for the other shards.
    ended = [each for each in others if not each.active]
    given_up = any(not (each.lives and each.lives[-1].finished) for each in ended)
    return given_up or (bool(others) and len(ended) == len(others))
