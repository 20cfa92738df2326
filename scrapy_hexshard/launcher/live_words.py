"""Numbers, times and progress as people read them. Pure."""

from __future__ import annotations

from math import floor

from scrapy_hexshard.launcher.live_pace import Progress

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def rate(per_minute: float | None) -> str:
    """A rate with as many digits as mean something; a dash for none."""
    if per_minute is None:
        return "-"
    return f"{per_minute:.1f}" if 0 < per_minute < 9.95 else f"{per_minute:,.0f}"


def percent(share: float) -> str:
    """*share* of 1 in percent, rounded down: 100 % is all of it."""
    # What a division lost in the last digits is no step down.
    return f"{floor(1_000 * share + 1e-6) / 10:.1f} %"


def about(seconds: float) -> str:
    """A time to come, in its one or two largest units."""
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    minutes = round(seconds / _MINUTE)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < _DAY // _MINUTE:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = round(seconds / _HOUR)
    return f"{hours // 24:,} d {hours % 24} h"


def elapsed(seconds: float) -> str:
    """A time gone by, to the second."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def extent(progress: Progress) -> str:
    """How many keys have ended, and of how many if that is known."""
    if progress.keys is None or progress.open is None:
        return f"{progress.ended:,} keys ended"
    if not progress.keys:
        return "no keys yet"
    return f"{progress.keys - progress.open:,} of {progress.keys:,} keys"


def outlook(progress: Progress) -> str:
    """When it will be through, or that nothing moves; empty when neither can be said."""
    if progress.stalled:
        return "stalled"
    return f"ETA {about(progress.eta)}" if progress.eta is not None else ""


def sentence(progress: Progress, *more: str) -> str:
    """The progress as a sentence that begins with the time, followed by what *more* there is."""
    share = progress.share
    parts = [
        extent(progress) + (f" ({percent(share)})" if share is not None else ""),
        f"{rate(progress.per_minute)} a minute" if progress.per_minute is not None else "",
        outlook(progress),
        *more,
    ]
    return f"{elapsed(progress.seconds)}: {', '.join(filter(None, parts))}."


def printable(text: str) -> str:
    """*text* without anything that a terminal would obey."""
    return "".join(char if char.isprintable() else " " for char in text)
