"""Waiting, the same under asyncio, any Twisted reactor and none."""

from __future__ import annotations

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred


async def turn() -> None:
    """Let the event loop do what else is due."""
    turned: Deferred[None] = Deferred()
    call_later(0, turned.callback, None)
    await maybe_deferred_to_future(turned)


class Alarm:
    """What a coroutine sleeps on until somebody wakes it; a call while it is awake is kept."""

    def __init__(self) -> None:
        self._rung = False
        self._sleeper: Deferred[None] | None = None

    def ring(self) -> None:
        """Wake the sleeper, or keep the next one from falling asleep."""
        self._rung = True
        if self._sleeper is not None:
            sleeper, self._sleeper = self._sleeper, None
            sleeper.callback(None)

    async def wait(self, seconds: float | None = None) -> None:
        """Sleep until ring(), at most for *seconds*."""
        if not self._rung:
            self._sleeper = Deferred()
            timer = None if seconds is None else call_later(seconds, self.ring)
            try:
                await maybe_deferred_to_future(self._sleeper)
            finally:
                self._sleeper = None
                if timer is not None:
                    timer.cancel()
        self._rung = False
