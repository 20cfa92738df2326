"""Draws a picture of a crawl with rich, as lines of text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from scrapy_hexshard.launcher import live_words as words
from scrapy_hexshard.launcher.live_pace import Progress
from scrapy_hexshard.launcher.live_table import Cell, Picture, Tone, lay_out, rows_for

# Names of the terminal's own colours, which its owner has chosen to be read on its background.
_STYLES = {
    Tone.PLAIN: "",
    Tone.QUIET: "dim",
    Tone.GOOD: "green",
    Tone.BAD: "bold red",
    Tone.CARE: "magenta",
    Tone.HEAD: "bold",
}
_BAR_WIDTH = 40
_LEAST_BAR = 10


class Painter:
    """Turns pictures into lines, none of which fills the last column of the terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def lines(self, picture: Picture, width: int, height: int) -> list[str]:
        """The lines of *picture* on a terminal of *width* columns and *height* lines."""
        self._console.size = width - 1, height
        with self._console.capture() as drawn:
            self._console.print(Group(*_parts(picture, width - 1, height)))
        return [line.rstrip() for line in drawn.get().splitlines()]


def terminal_console(*, stderr: bool) -> Console:
    """A console that knows the colours of the terminal and of ``NO_COLOR``."""
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def _parts(picture: Picture, width: int, height: int) -> Iterable[RenderableType]:
    if rows_for(height):
        yield from (_line(cells) for cells in lay_out(picture, width))
    yield _headline(picture.progress, width)


def _line(cells: Iterable[Cell]) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    for cell in cells:
        line.append(cell.text, style=_STYLES[cell.tone])
    line.rstrip()
    return line


def _headline(progress: Progress, width: int) -> RenderableType:
    share = progress.share
    room = width if share is None else width - _LEAST_BAR - 2
    text = _said(progress, room)
    if share is None or room < len(text):
        return text
    bar = ProgressBar(
        width=min(_BAR_WIDTH, width - len(text) - 2),
        total=1.0,
        completed=share,
        style="bright_black",
        complete_style="green",
        finished_style="green",
    )
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_row(bar, text)
    return row


def _said(progress: Progress, width: int) -> Text:
    """As much of the progress as fits into *width*, the most important first."""
    share = progress.share
    ranked = (
        (0, Cell(words.percent(share) if share is not None else "", Tone.HEAD)),
        (2, Cell(words.extent(progress))),
        (3, Cell(_speed(progress))),
        (1, Cell(words.outlook(progress), Tone.CARE if progress.stalled else Tone.HEAD)),
        (4, Cell(words.elapsed(progress.seconds), Tone.QUIET)),
    )
    said = [(rank, cell) for rank, cell in ranked if cell.text]
    while len(said) > 1 and sum(len(cell.text) + 2 for _, cell in said) - 2 > width:
        said.remove(max(said, key=lambda each: each[0]))
    return _line(cell._replace(text=f"{cell.text}  ") for _, cell in said)


def _speed(progress: Progress) -> str:
    return "" if progress.per_minute is None else f"{words.rate(progress.per_minute)} keys/min"
