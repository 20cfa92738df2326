"""The terminal, or what stands in for it: nobody who writes to it waits for its reader."""

from __future__ import annotations

import os
from contextlib import suppress

from scrapy_hexshard.launcher.channel import OWN_NAME, Channel
from scrapy_hexshard.launcher.live_screen import View, harmless

CAPACITY_BYTES = 4_194_304
PATIENCE_SECONDS = 5.0


class Console:
    """Lines for standard output and error; in the order in which they came where both are one.

    When a reader is slower than the workers, lines are dropped and counted. When it is gone they
    are lost without an error: no worker may stop because of that. If they have two readers, neither
    waits for the other.
    """

    def __init__(self, out: int = 1, err: int = 2, capacity: int = CAPACITY_BYTES) -> None:
        self._out = out
        self._err = err
        self._capacity = capacity
        self._to_terminal = _is_terminal(out)
        is_one = _lead_to_one_place(out, err)
        self._errors = Channel(err)
        self._output = self._errors if is_one else Channel(out)

    @property
    def dropped(self) -> int:
        """How many lines were not written, though somebody may read them."""
        return sum(channel.dropped for channel in {self._output, self._errors})

    def show(self, line: bytes) -> None:
        """Queue a worker's line for standard output."""
        if self._to_terminal:
            line = harmless(line.decode(errors="replace")).encode(errors="replace")
        self._output.put(self._out, line, self._capacity)

    def say(self, text: str) -> None:
        """Queue a sentence of the launcher's own for standard error."""
        self.print(f"{OWN_NAME}: {text}\n")

    def print(self, text: str) -> None:
        """Queue *text* for standard error, even when no room is left for the workers' lines."""
        self._errors.put(self._err, text.encode(errors="replace"), 2 * self._capacity)

    def show_view(self, view: View) -> None:
        """Keep what *view* returns below all lines, drawn anew once a second."""
        self._errors.show_view(view)

    def lose_place(self) -> None:
        """Others have written to the terminal: draw the next view below that. Signal-safe."""
        self._errors.lose_place()

    def end_view(self) -> None:
        """Remove the view; what is written from now on stays."""
        self._errors.end_view()

    def close(self, patience: float = PATIENCE_SECONDS) -> None:
        """Write what is queued, and say how much was dropped.

        A reader that takes nothing for *patience* seconds is given up.
        """
        if self._output is not self._errors:
            self._output.close(patience)
        if self.dropped:
            lines = f"{self.dropped} line{' was' if self.dropped == 1 else 's were'}"
            self.say(f"{lines} not shown: not read in time, or not to be written.")
        self._errors.close(patience)


def _is_terminal(fd: int) -> bool:
    return fd >= 0 and os.isatty(fd)


def _lead_to_one_place(out: int, err: int) -> bool:
    """Whether both are one file, or terminals: of these a process has no more than one."""
    if out == err or (_is_terminal(out) and _is_terminal(err)):
        return True
    with suppress(OSError):
        return os.path.sameopenfile(out, err)
    return False
