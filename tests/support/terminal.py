"""A terminal without a window: what would be seen of the bytes that a program writes to one."""

from __future__ import annotations

import re

_PART = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)|(.)", re.DOTALL)


class Terminal:
    """Knows what this project may write: text, styles, cursor up, clearing. All else is refused."""

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        self.columns, self.lines = columns, lines
        self.rows = [""]  # all that ever were, those that have been scrolled away first
        self.row = 0
        self.column = 0
        self.styled = False
        self._pending_wrap = False

    def feed(self, data: bytes) -> Terminal:
        for found in _PART.finditer(data.decode()):
            argument, command, control, text, strange = found.groups()
            assert not strange, f"{strange!r} in {data!r}"
            if text is not None:
                for char in text:
                    self._put(char)
            elif control:
                self._pending_wrap = False
                self.column = 0
                if control == "\n":
                    self._to_row(self.row + 1)
            else:
                self._obey(command, argument)
        return self

    def _put(self, char: str) -> None:
        if self._pending_wrap:
            self._pending_wrap = False
            self.column = 0
            self._to_row(self.row + 1)
        line = self.rows[self.row].ljust(self.column)
        self.rows[self.row] = line[: self.column] + char + line[self.column + 1 :]
        if self.column == self.columns - 1:
            self._pending_wrap = True
        else:
            self.column += 1

    def _obey(self, command: str, argument: str) -> None:
        match command:
            case "A":
                top = max(0, len(self.rows) - self.lines)
                self._to_row(max(top, self.row - int(argument or 1)))
            case "K" if not argument:
                self.rows[self.row] = self.rows[self.row][: self.column]
            case "J" if not argument:
                self.rows[self.row :] = [self.rows[self.row][: self.column]]
            case "m":
                self.styled = argument not in {"", "0"}
            case _:
                raise AssertionError(f"a sequence that is not known: {argument}{command}")

    def _to_row(self, row: int) -> None:
        self.row = row
        self.rows += [""] * (row + 1 - len(self.rows))

    def resize(self, columns: int, lines: int) -> None:
        """As most terminals do it: lines that no longer fit are broken, the cursor stays below."""
        broken: list[str] = []
        for number, row in enumerate(self.rows):
            if number == self.row:
                self.row = len(broken)
            broken += [row[at : at + columns] for at in range(0, len(row), columns)] or [""]
        self.rows, self.columns, self.lines = broken, columns, lines

    @property
    def text(self) -> list[str]:
        """All lines, without the empty ones at the end."""
        shown = [row.rstrip() for row in self.rows]
        while shown and not shown[-1]:
            shown.pop()
        return shown
