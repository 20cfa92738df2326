"""Threads without which the launcher cannot begin."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from scrapy_hexshard.errors import LaunchError


def start_thread(target: Callable[..., None], *args: Any, name: str) -> None:
    """Run *target* in a thread that ends with the process.

    Raises LaunchError, with exit code 1, if the system has none to give.
    """
    try:
        threading.Thread(target=target, args=args, name=name, daemon=True).start()
    except RuntimeError:
        raise LaunchError(
            "The system gives the launcher no further thread, so that nothing was started. Look at "
            "the limits on processes and memory: ulimit -u and -v, or the pids limit of the "
            "container.",
            exit_code=1,
        ) from None
