"""The stages by which one worker is stopped. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

AGAIN_AT = 0.8  # of the grace time
UNKILLABLE_SECONDS = 5.0


class Stage(IntEnum):
    """What has been done to make a worker end."""

    NONE = 0
    ASKED = 1  # SIGTERM: finish what is in flight
    PRESSED = 2  # SIGTERM again: drop what is in flight
    KILLED = 3  # SIGKILL
    GIVEN_UP = 4  # it outlives even that: it waits for a device, or is a zombie nobody reaps


class Ladder:
    """Says when it is time for the next stage, *grace* seconds lying between first and SIGKILL."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._begun: float | None = None
        self._killed: float | None = None
        self._pushed = Stage.NONE
        self.stage = Stage.NONE

    @property
    def begun(self) -> bool:
        """Whether the worker is being stopped."""
        return self._begun is not None

    def begin(self, now: float) -> None:
        """Start at the first stage; nothing happens if it has begun already."""
        if self._begun is None:
            self._begun = now
            self._pushed = Stage.ASKED

    def push(self) -> None:
        """Make the next stage due at once, but for giving up."""
        self._pushed = Stage(min(max(self._pushed, self.stage) + 1, Stage.KILLED))

    def climb(self, now: float) -> Iterator[Stage]:
        """The stages to carry out now, in order, each once."""
        while self.stage < self._due(now):
            self.stage = Stage(self.stage + 1)
            if self.stage is Stage.KILLED:
                self._killed = now
            yield self.stage

    def next_at(self) -> float | None:
        """When climb() should be called again, by the clock whose times were given."""
        if self._begun is None or self.stage is Stage.GIVEN_UP:
            return None
        if self._killed is not None:
            return self._killed + UNKILLABLE_SECONDS
        share = (0.0, AGAIN_AT, 1.0)[self.stage]
        return self._begun + share * self._grace

    def _due(self, now: float) -> Stage:
        if self._begun is None:
            return Stage.NONE
        if self._killed is not None:
            return Stage.GIVEN_UP if now >= self._killed + UNKILLABLE_SECONDS else Stage.KILLED
        times = (0.0, AGAIN_AT * self._grace, self._grace)
        by_time = sum(now >= self._begun + after for after in times)
        return Stage(max(by_time, self._pushed))
