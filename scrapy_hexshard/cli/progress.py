"""A progress bar on a terminal: bytes read of those there are, records a second, time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from scrapy_hexshard.cli.listing import Listing

_TIMES_A_SECOND = 2


@contextmanager
def progress_bar(
    listing: Listing, text: Callable[[], str], records: Callable[[], int]
) -> Iterator[Callable[[], None]]:
    """Shows *text*, the rate of *records* and a bar while *listing* is read.

    Call what it gives whenever there is something new. Nothing is shown where stderr is no
    terminal, or where the keys are typed on it.
    """
    typing_keys = listing.reads_stdin and sys.stdin.isatty()
    if not sys.stderr.isatty() or typing_keys:
        yield lambda: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    size, started = listing.size, time.monotonic()
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=10),
        *([TaskProgressColumn(), TimeRemainingColumn(compact=True)] if size else []),
        console=Console(stderr=True),
        refresh_per_second=_TIMES_A_SECOND,
        transient=True,
    )
    task = bar.add_task(text(), total=size)

    def advance() -> None:
        rate = records() / max(time.monotonic() - started, 0.001)
        bar.update(task, completed=listing.position, description=f"{text()}, {rate:,.0f}/s")

    with bar:
        yield advance
