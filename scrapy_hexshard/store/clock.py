"""The time of a store whose clock is the machine's: it never runs back and never stands still."""

from __future__ import annotations

import time
from collections.abc import Callable


class StoreClock:
    """Store time in milliseconds since 1970.

    It is the machine's time, unless that is behind what the store has seen already: then it goes
    on from there by the monotonic clock until the machine's time has caught up.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._last = 0.0
        self._last_at = monotonic()

    def now(self, stored: int) -> int:
        """The store time, given the last time that was *stored* in it."""
        wall, ticks = self._wall() * 1000, self._monotonic()
        if wall < stored:
            wall = max(float(stored), self._last + (ticks - self._last_at) * 1000)
        self._last, self._last_at = wall, ticks
        return int(wall)
