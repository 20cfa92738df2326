"""What a benchmark found, as Markdown, and the places in a page where it belongs."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number with its unit and, if there is one, the goal it has to meet.

    *values* are those of the rounds; the figure is their median.
    """

    name: str
    values: tuple[float, ...]
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None

    @property
    def value(self) -> float:
        return statistics.median(self.values)

    @property
    def is_met(self) -> bool:
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )

    @property
    def goal(self) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least:,g} {self.unit}".rstrip()
        return "" if self.at_most is None else f"≤ {self.at_most:,g} {self.unit}".rstrip()

    def cells(self) -> tuple[str, ...]:
        """Its row: what, median, least and greatest, goal, and whether that is met."""
        spread = f"{number(min(self.values))} to {number(max(self.values))}"
        met = "yes" if self.is_met else "**no**"
        return (
            self.name,
            f"{number(self.value)} {self.unit}".rstrip(),
            spread if len(self.values) > 1 else "",
            self.goal,
            met if self.goal else "",
        )


@dataclass(slots=True)
class Section:
    """The outcome of one benchmark: figures, further tables, and a few words."""

    name: str
    title: str
    about: str
    figures: list[Figure] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        heads = ("", "median", "lowest to highest round", "goal", "met")
        parts = [f"## {self.title}", self.about]
        if self.figures:
            parts.append(table(heads, [figure.cells() for figure in self.figures]))
        return "\n\n".join([*parts, *self.tables]) + "\n"


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, ...]:
    """Ours over theirs, round by round."""
    return tuple(a / b for a, b in zip(ours, theirs, strict=True))


def number(value: float) -> str:
    """Three figures are all that a benchmark can tell: 12,345 and 1.23 and 0.0123."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_into(page: Path, section: Section) -> None:
    """Put *section* where *page* marks its place, or at the end if it has none yet."""
    begin, end = f"<!-- {section.name} -->", f"<!-- end of {section.name} -->"
    text = page.read_text(encoding="utf-8") if page.exists() else "# Benchmarks\n"
    part = f"{begin}\n{section.markdown()}{end}\n"
    place = re.compile(f"{re.escape(begin)}.*{re.escape(end)}\n", re.DOTALL)
    if place.search(text):
        text = place.sub(lambda _: part, text)
    else:
        text += f"\n{part}"
    page.write_text(text, encoding="utf-8")


def write_json(file: Path, sections: Iterable[Section]) -> None:
    """All figures, for a program to read."""
    figures = {
        section.name: [
            {**asdict(figure), "value": figure.value, "is_met": figure.is_met}
            for figure in section.figures
        ]
        for section in sections
    }
    file.write_text(json.dumps(figures, indent=1), encoding="utf-8")
