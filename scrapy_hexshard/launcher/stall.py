"""Whether a worker gets nowhere. Pure."""

from __future__ import annotations

# Workers report once a second: less than this would take a slow second for a stall.
MIN_STALL_SECONDS = 3.0


class StallWatch:
    """Tells when a worker has shown no progress for *timeout* seconds; never if that is None."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._since = 0.0
        self._mark: object = None

    def begin(self, now: float) -> None:
        """A life begins."""
        self._since = now
        self._mark = None

    def look(self, now: float, mark: object, *, idle: bool = False) -> None:
        """Take in a sign of life: progress if *mark* has changed, or if there is nothing to do."""
        if idle or mark != self._mark:
            self._mark = mark
            self._since = now

    def is_over(self, now: float) -> bool:
        """Whether the time is over."""
        return self._timeout is not None and now >= self._since + self._timeout

    def next_at(self) -> float | None:
        """When the time is over, if nothing happens before."""
        return None if self._timeout is None else self._since + self._timeout
