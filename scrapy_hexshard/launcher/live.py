"""The live view of a run, and the line a minute where it cannot be drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scrapy_hexshard.launcher.live_workers import Observer, Sight, Watched

VIEW_SECONDS = 1.0
LOOK_SECONDS = 5.0  # between two lines
LINE_SECONDS = 60.0


class LiveView:
    """What the newest look at *workers* shows, as lines for a terminal.

    One thread looks, another one asks for the lines: between them passes a Sight, which is never
    changed.
    """

    def __init__(self, workers: Sequence[Watched]) -> None:
        self._observer = Observer(workers)
        self._sight: Sight | None = None
        self._paint: Callable[[Sight, int, int], list[str]] | None = None
        self.next_at = 0.0

    def look(self, now: float) -> None:
        """Look at the workers, if it is time."""
        if now >= self.next_at:
            self.next_at = now + VIEW_SECONDS
            self._sight = self._observer.look(now)

    def lines(self, width: int, height: int) -> Sequence[str]:
        """The lines of the view on a terminal of that size."""
        if self._sight is None:
            return ()
        if self._paint is None:
            self._paint = _painter()
        return self._paint(self._sight, width, height)


class LineAMinute:
    """Says once a minute how far *workers* are."""

    def __init__(self, workers: Sequence[Watched], say: Callable[[str], None]) -> None:
        self._observer = Observer(workers)
        self._say = say
        self._next_line: float | None = None
        self.next_at = 0.0

    def look(self, now: float) -> None:
        """Look at the workers, if it is time, and say something if it is time for that."""
        if now < self.next_at:
            return
        sight = self._observer.look(now)
        if self._next_line is None:
            self._next_line = now + LINE_SECONDS
        elif now >= self._next_line:
            self._next_line = now + LINE_SECONDS
            self._say(sight.sentence())
        self.next_at = min(now + LOOK_SECONDS, self._next_line)


def _painter() -> Callable[[Sight, int, int], list[str]]:
    # Only once there is something to draw: rich takes longer to load than all the rest.
    from scrapy_hexshard.launcher.live_layout import Painter, terminal_console  # noqa: PLC0415

    painter = Painter(terminal_console(stderr=True))
    return lambda sight, width, height: painter.lines(sight.picture(height), width, height)
