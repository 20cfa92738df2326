"""Runs a module of which a thread stands still at SIGUSR1, until a file is there.

``python blocked.py reactor|store FILE MODULE ...``; the store's thread stands still where it holds
no lock.
"""

from __future__ import annotations

import runpy
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy_hexshard import SQLiteWorkStore

if TYPE_CHECKING:
    from collections.abc import Iterator

which, go_on = sys.argv[1], Path(sys.argv[2])
asked = threading.Event()
group = SQLiteWorkStore.group


def stand_still() -> None:
    go_on.with_suffix(".blocked").touch()
    while not go_on.exists():
        time.sleep(0.05)


@contextmanager
def late_group(store: SQLiteWorkStore) -> Iterator[None]:
    if asked.is_set():
        asked.clear()
        stand_still()
    with group(store):
        yield


def on_signal(*_: Any) -> None:
    if which == "reactor":
        stand_still()  # handlers run in the main thread, which is the reactor's
    else:
        asked.set()


SQLiteWorkStore.group = late_group  # type: ignore[method-assign]
signal.signal(signal.SIGUSR1, on_signal)
sys.argv = sys.argv[3:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
