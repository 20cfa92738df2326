"""The event loop, waited for or called from a thread: asyncio, any Twisted reactor or none."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from scrapy.utils.asyncio import call_later, is_asyncio_available
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


def from_thread() -> Callable[..., object]:
    """How a thread hands a call to the event loop, which this is called in."""
    if is_asyncio_available():
        loop = asyncio.get_running_loop()

        def post(function: Callable[..., object], *args: Any) -> None:
            # After a forced stop nobody is left to hear the answer.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(function, *args)

        return post
    from twisted.internet import reactor  # noqa: PLC0415

    return reactor.callFromThread  # type: ignore[no-any-return]
