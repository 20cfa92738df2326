"""The place of a live view on a terminal: below the lines, which go by above it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence

View = Callable[[int, int], Sequence[str]]  # the lines for so many columns and rows
Size = tuple[int, int]

_STYLE = re.compile(r"\x1b\[[\d;]*m")
# A style may stay; the rest, such as a worker's progress bar, would paint over the view.
_OBEYED = re.compile(r"\x1b\[[\d;:]*m|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_UP, _CLEAR_LINE, _CLEAR_BELOW, _PLAIN = "\x1b[{}A", "\x1b[K", "\x1b[J", "\x1b[m"
_NO_TERMINALS = {"", "dumb", "unknown"}


def can_draw(out: int, err: int, environ: Mapping[str, str]) -> bool:
    """Whether *err* is a terminal to draw on, and nobody else writes there what comes from *out*.

    A reader at the end of a pipe, such as ``tee``, most often does.
    """
    if environ.get("TERM", "") in _NO_TERMINALS or not os.isatty(err):
        return False
    mode = os.fstat(out).st_mode
    return not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))


def terminal_size(fd: int) -> Size | None:
    """Columns and rows of the terminal *fd*; None once it has gone."""
    try:
        size = os.get_terminal_size(fd)
    except OSError:
        return None
    return size.columns or _number("COLUMNS", 80), size.lines or _number("LINES", 24)


class Screen:
    """Says what to write so that *view* stands below all lines; it writes nothing itself.

    The cursor rests at the start of the line below the view, is never hidden, and no mode of the
    terminal is changed: whatever ends this process, there is nothing to put right.
    """

    def __init__(self, view: View, size: Callable[[], Size | None]) -> None:
        self._view = view
        self._size = size
        self._lines: Sequence[str] = ()
        self._made_for: Size | None = None
        self._standing: list[int] = []  # the length of each line of the view that is to be seen
        self.lost = False  # others have written: what stands there is left alone

    def paint(self, lines: bytes = b"", *, anew: bool = True) -> bytes:
        """Put *lines* above the view, and with *anew* a new view in the place of the last one."""
        size = self._size()
        start = self._back(size)
        if anew or size != self._made_for:
            self._made_for = size
            self._lines = self._view(*size) if size else ()
        self._standing = [len(_STYLE.sub("", line)) for line in self._lines]
        if lines:
            start += _CLEAR_BELOW + harmless(lines.decode(errors="replace"))
        # Line by line: a view that is cleared as a whole before it is written again flickers.
        body = "".join(f"{_CLEAR_LINE}{line}\n" for line in self._lines)
        return (start + body + _CLEAR_BELOW).encode(errors="replace")

    def clear(self) -> bytes:
        """Remove the view."""
        return (self._back(self._size()) + _CLEAR_BELOW).encode()

    def _back(self, size: Size | None) -> str:
        """To the start of the view, whose lines a narrower terminal may have broken."""
        if self.lost:
            self._standing, self.lost = [], False
        columns = size[0] if size else 1
        rows = sum(max(1, -(-length // columns)) for length in self._standing) if size else 0
        self._standing = []
        return "\r" + (_UP.format(rows) if rows else "")


def harmless(lines: str) -> str:
    """*lines* with nothing in them that would move the cursor or change the terminal."""
    shown = _OBEYED.sub(lambda found: found[0] if found[0].startswith("\x1b[") else "?", lines)
    return shown.replace("\n", f"{_PLAIN}\n") if "\x1b" in shown else shown


def _number(variable: str, default: int) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isascii() and text.isdigit() and int(text) else default
