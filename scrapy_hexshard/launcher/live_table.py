"""A table that fits a terminal: rows folded to its height, columns left out to its width. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple, TypeVar

from scrapy_hexshard.launcher.live_pace import Progress

MOST_ROWS = 32
_MOST_GROUPS = 16
_OTHER_LINES = 8  # head, total, bar, the cursor's line, and some room for log lines
_GAP = "  "
_LEAST_TEXT = 10

T = TypeVar("T")


class Tone(Enum):
    """What a cell means to its reader; how that looks is decided where it is drawn."""

    PLAIN = ""
    QUIET = "quiet"
    GOOD = "good"
    BAD = "bad"
    CARE = "care"
    HEAD = "head"


class Cell(NamedTuple):
    """Text, and what it means."""

    text: str
    tone: Tone = Tone.PLAIN


class Column(NamedTuple):
    """The head of a column; of several that do not fit, the one of the highest rank goes first."""

    title: str
    rank: int
    is_text: bool = False


class Picture(NamedTuple):
    """What is drawn: the progress of a crawl, and a row of cells for each shard or group."""

    progress: Progress
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    total: Sequence[Cell]


def rows_for(height: int) -> int:
    """How many rows may stand on a terminal of *height* lines; 0 means the bar alone."""
    return max(0, min(MOST_ROWS, height - _OTHER_LINES))


def fold(shards: Sequence[T], most: int) -> list[Sequence[T]]:
    """*shards* in at most *most* groups of neighbours: of one each, if there are so few."""
    groups = len(shards) if len(shards) <= most else max(1, min(most, _MOST_GROUPS))
    size = -(-len(shards) // max(1, groups))
    return [shards[start : start + size] for start in range(0, len(shards), size or 1)]


def numbers(group: Iterable[int]) -> str:
    """The name of a group of neighbouring shards."""
    first, *rest = group
    return f"{first}-{rest[-1]}" if rest else str(first)


def count(number: int, tone: Tone = Tone.PLAIN) -> Cell:
    """A cell with a number, a quiet one if that is zero."""
    return Cell(f"{number:,}", tone if number else Tone.QUIET)


def lay_out(picture: Picture, width: int) -> list[list[Cell]]:
    """The lines of the table, head first, of cells that need only be put side by side."""
    head = [Cell(column.title, Tone.HEAD) for column in picture.columns]
    total = [cell._replace(tone=Tone.HEAD) for cell in picture.total]
    lines = [head, *picture.rows, *([total] if len(picture.rows) > 1 else [])]
    widths = [max(len(line[place].text) for line in lines) for place in range(len(head))]
    kept = _fitting(picture.columns, widths, width)
    return [
        [_padded(line[place], picture.columns[place], widths[place]) for place in kept]
        for line in lines
    ]


def _fitting(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """The places of the columns that stay; text, which can be cut, is no reason to drop others."""
    kept = list(range(len(columns)))
    while len(kept) > 1 and _needed(kept, columns, widths) > width:
        kept.remove(max(kept, key=lambda place: columns[place].rank))
    return kept


def _needed(kept: Sequence[int], columns: Sequence[Column], widths: Sequence[int]) -> int:
    last = kept[-1]
    cut = min(widths[last], _LEAST_TEXT) if columns[last].is_text else widths[last]
    return sum(widths[place] for place in kept[:-1]) + cut + len(_GAP) * (len(kept) - 1)


def _padded(cell: Cell, column: Column, width: int) -> Cell:
    text = cell.text.ljust(width) if column.is_text else cell.text.rjust(width)
    return cell._replace(text=text + _GAP)
