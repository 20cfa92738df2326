"""How fast a crawl goes lately, and when it will be through at that pace. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

WINDOW_SECONDS = 180.0
RATE_AFTER_SECONDS = 3.0  # a rate from less says nothing
ETA_AFTER_SECONDS = 30.0
STILL_SECONDS = 60.0


class Pace:
    """How a count has grown over the last *window* seconds, by the clock whose times are given."""

    def __init__(self, window: float = WINDOW_SECONDS) -> None:
        self._window = window
        self._samples: deque[tuple[float, int]] = deque()
        self._moved_at = 0.0

    def add(self, now: float, count: int) -> None:
        """Take in that the count is *count* at *now*."""
        samples = self._samples
        if not samples or samples[-1][1] != count:
            self._moved_at = now
        if len(samples) == 1 and samples[0][1] == count:
            samples.clear()  # the time before the first step is none of work
        samples.append((now, count))
        while len(samples) > 2 and samples[1][0] <= now - self._window:
            samples.popleft()

    @property
    def seconds(self) -> float:
        """How long a time the rate is taken from."""
        return self._samples[-1][0] - self._samples[0][0] if self._samples else 0.0

    @property
    def per_minute(self) -> float | None:
        """The rate; None while there is too little to take it from."""
        if self.seconds < RATE_AFTER_SECONDS:
            return None
        return max(0.0, 60 * (self._samples[-1][1] - self._samples[0][1]) / self.seconds)

    def is_still(self, now: float) -> bool:
        """Whether the count has not changed for a minute."""
        return bool(self._samples) and now - self._moved_at >= STILL_SECONDS


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a crawl is. *keys* and *open* are None while not every shard tells them."""

    seconds: float  # since it was first looked at
    ended: int  # keys that are done or dead, as far as they were counted
    keys: int | None = None
    open: int | None = None
    per_minute: float | None = None  # keys that end
    eta: float | None = None  # seconds
    stalled: bool = False  # keys are running, but nothing has moved for a minute

    @property
    def share(self) -> float | None:
        """The part of all keys that has ended, from 0 to 1; None where there are no keys."""
        if not self.keys or self.open is None:
            return None
        return 1 - self.open / self.keys


class Course:
    """Follows a whole crawl from one look to the next."""

    def __init__(self, window: float = WINDOW_SECONDS) -> None:
        self._ended = Pace(window)
        self._moves = Pace(window)
        self._begun: float | None = None

    def look(
        self,
        now: float,
        *,
        ended: int,
        moves: int,
        running: int,
        keys: int | None = None,
        open_: int | None = None,
    ) -> Progress:
        """The progress at *now*; *moves* is a count that grows whenever anything happens."""
        if self._begun is None:
            self._begun = now
        self._ended.add(now, ended)
        self._moves.add(now, moves)
        return Progress(
            seconds=now - self._begun,
            ended=ended,
            keys=keys,
            open=open_,
            per_minute=self._ended.per_minute,
            eta=self._eta(open_),
            stalled=running > 0 and self._moves.is_still(now),
        )

    def _eta(self, open_: int | None) -> float | None:
        rate = self._ended.per_minute
        if not open_ or not rate or self._ended.seconds < ETA_AFTER_SECONDS:
            return None
        return 60 * open_ / rate
