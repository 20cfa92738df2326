"""Keeps count of the keys that look like URLs without their scheme, and became ids for that."""

from __future__ import annotations

from collections.abc import Iterator

from scrapy_hexshard.cli.key_lines import lacks_scheme
from scrapy_hexshard.cli.rejects import counted


class Schemeless:
    """The keys of a run that may have been meant as URLs."""

    def __init__(self) -> None:
        self.count = 0
        self._first = ""

    def look(self, key: str, name: str, line: int) -> None:
        """Take in a canonical *key*, of the record of input *name* that begins at *line*."""
        if lacks_scheme(key):
            self.count += 1
            self._first = self._first or f"{name}:{line}"

    def sentences(self, noun: str, advice: str) -> Iterator[str]:
        """How many there were, and the first, if any; a record is called a *noun*."""
        if self.count:
            yield (
                f"Warning: {counted(self.count, noun, 'looks', 'look')} like a URL without "
                f"https:// and became an id, first {self._first}. If it should be a URL, {advice}."
            )
