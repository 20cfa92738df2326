"""Whether a worker gets nowhere. Pure."""

from __future__ import annotations

# Workers report once a second: less than this would take a slow second for a stall.
MIN_STALL_SECONDS = 3.0
PULSE_SECONDS = 1.0


class StallWatch:
    """Tells when a worker has shown no progress for *timeout* seconds; never if that is None."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._since = 0.0
        self._mark: object = None

    def begin(self, now: float, mark: object = None) -> None:
        """A life begins, with *mark*."""
        self._since = now
        self._mark = mark

    def look(self, now: float, mark: object, *, idle: bool = False) -> None:
        """Take in a sign of life: progress if *mark* has changed, or if there is nothing to do."""
        if idle or mark != self._mark:
            self._mark = mark
            self._since = now

    def postpone(self, seconds: float) -> None:
        """Leave *seconds* out, in which nobody watched."""
        self._since += seconds

    def is_over(self, now: float) -> bool:
        """Whether the time is over."""
        return self._timeout is not None and now >= self._since + self._timeout

    def next_at(self) -> float | None:
        """When the time is over, if nothing happens before."""
        return None if self._timeout is None else self._since + self._timeout


class Pulse:
    """Notices that this process was stopped, as by Ctrl-Z or the pause of its container.

    It is to beat at least every PULSE_SECONDS. Its workers may have been stopped with it.
    """

    def __init__(self) -> None:
        self._last: float | None = None

    def beat(self, now: float) -> float:
        """The seconds since the last beat if they are too many, else 0."""
        gap = 0.0 if self._last is None else now - self._last
        self._last = now
        return gap if gap > 2 * PULSE_SECONDS else 0.0
