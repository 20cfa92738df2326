"""Whether, and when, a worker that failed is started again. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable

from scrapy_hexshard.launcher.verdict import Life

FIRST_DELAY = 0.25
MAX_BOOT_FAILURES = 3
# A life that lasted longer was no failure to boot, even if it never said that it opened a spider.
BOOT_SECONDS = 60.0


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

    def delay_after(self, life: Life) -> float | None:
        """Seconds to wait before the worker's next life, or None if there is to be none."""
        self._count(life)
        if life.succeeded or life.told_to_stop or self.fails_to_boot:
            return None
        allowed = max(self._allowed, int(life.stalled))
        if allowed == 0 or self._fruitless > allowed:
            return None
        delay = min(FIRST_DELAY * 2.0 ** min(self._fruitless, 64), self._max_delay)
        return delay * (0.5 + 0.5 * self._jitter())

    @property
    def fails_to_boot(self) -> bool:
        """Whether the last lives all ended by themselves before a spider opened."""
        return self._boot_failures >= MAX_BOOT_FAILURES

    def _count(self, life: Life) -> None:
        self._fruitless = 0 if life.totals.settled else self._fruitless + 1
        self._boot_failures = self._boot_failures + 1 if _failed_to_boot(life) else 0


def _failed_to_boot(life: Life) -> bool:
    ended_by_itself = life.returncode is None or life.returncode > 0
    return ended_by_itself and not life.reported and life.seconds < BOOT_SECONDS
