"""Counts how keys ended, under a bounded number of short forms."""

from __future__ import annotations

import sqlite3
from collections import Counter

from scrapy_hexshard.store.named_queries import named_queries
from scrapy_hexshard.store.outcomes import MAX_COUNTED, OTHER, outcome_text, short_form

_SQL = named_queries("sqlite")


class Ends:
    """The outcomes of the keys that end in one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._counted: dict[str, tuple[int, str]] = {}
        self._ends: Counter[int] = Counter()

    def count(self, outcome: str, n: int = 1) -> tuple[int, str | None]:
        """The id under which *n* ends by *outcome* are counted; its text where that says more."""
        text = outcome_text(outcome)
        short = short_form(text)
        if short not in self._counted:
            self._counted[short] = self._find(short) or self._add(short)
        id_, name = self._counted[short]
        self._ends[id_] += n
        return id_, None if text == name else text

    def store(self) -> None:
        rows = [(n, id_) for id_, n in self._ends.items()]
        self._connection.executemany(_SQL["count_outcome"], rows)

    def _find(self, name: str) -> tuple[int, str] | None:
        row = self._connection.execute(_SQL["outcome_id"], (name,)).fetchone()
        return (row[0], name) if row else None

    def _add(self, name: str) -> tuple[int, str]:
        kinds = self._connection.execute(_SQL["outcome_kinds"]).fetchone()[0]
        if kinds >= MAX_COUNTED:
            if found := self._find(OTHER):
                return found
            name = OTHER
        return self._connection.execute(_SQL["add_outcome"], (name,)).fetchall()[0][0], name
