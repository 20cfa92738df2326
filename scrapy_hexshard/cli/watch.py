"""Shows a store again and again, until nothing in it is open any more."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Event

from scrapy_hexshard.cli.watched_store import StoreObserver, StoreSight
from scrapy_hexshard.launcher import live_words as words
from scrapy_hexshard.launcher.live_screen import Screen, can_draw, terminal_size
from scrapy_hexshard.store.contract import ShardCounts

_LONGEST_SLEEP = 1.0  # so that a view soon fits a terminal that was resized

Read = Callable[[], list[ShardCounts]]


def watch(read: Read, seconds: float) -> None:
    """Show what *read* returns every *seconds*, on a terminal as a view that is gone at the end.

    Comes back when no key is open; Ctrl-C raises KeyboardInterrupt and leaves the view to be read.
    """
    if can_draw(1, 1, os.environ):
        _watch_on_terminal(read, seconds)
    else:
        observer = StoreObserver()
        repeat(lambda: _say(observer.look(time.monotonic(), read())), seconds)


def repeat(
    show: Callable[[], bool], seconds: float, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Call *show* every *seconds* for as long as it returns true."""
    while show():
        sleep(seconds)


def _say(sight: StoreSight) -> bool:
    sys.stdout.write(words.sentence(sight.progress) + "\n")
    sys.stdout.flush()
    return bool(sight.progress.open)


def _watch_on_terminal(read: Read, seconds: float) -> None:
    from scrapy_hexshard.launcher.live_layout import Painter, terminal_console  # noqa: PLC0415

    painter, observer = Painter(terminal_console(stderr=False)), StoreObserver()
    sight = observer.look(time.monotonic(), read())

    def lines(width: int, height: int) -> Sequence[str]:
        return painter.lines(sight.picture(height), width, height)

    screen = Screen(lines, partial(terminal_size, 1))
    with _interruption() as interrupted:
        while sight.progress.open:
            _write(screen.paint())
            _sleep(seconds, screen, interrupted)
            if interrupted.is_set():
                raise KeyboardInterrupt
            sight = observer.look(time.monotonic(), read())
    _write(screen.clear())


@contextmanager
def _interruption() -> Iterator[Event]:
    """Inside, Ctrl-C only sets the event: half of a view would otherwise be left behind."""
    event = Event()
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: event.set())
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)


def _sleep(seconds: float, screen: Screen, interrupted: Event) -> None:
    until = time.monotonic() + seconds
    while (rest := until - time.monotonic()) > 0 and not interrupted.is_set():
        interrupted.wait(min(rest, _LONGEST_SLEEP))
        _write(screen.paint(anew=False))  # over the ^C, or for another size


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.flush()
