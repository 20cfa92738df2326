"""The stop signals of process 1, as in a container, while nothing else listens to them."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType


def heed_stop_signals() -> None:
    """Have SIGTERM and SIGHUP end process 1 as they end any other.

    The system spares it a signal for which it has no handler: a container would then be killed
    once its time is over. One that is ignored stays so; in another process nothing is changed.
    """
    if os.getpid() != 1 or threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def _end(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)
