"""One record of a list: the work it stands for, or what is wrong with it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import NamedTuple

from scrapy_hexshard.errors import HexShardError, InvalidKeyError
from scrapy_hexshard.keys import canonical_key, shown
from scrapy_hexshard.store.contract import Work

WHOLE_RECORD = "."
LONGEST_RECORD = 8_000_000  # bytes; far more than a payload may have
_COLUMNS_NAMED = 20

# Made once: json.dumps makes one at each call.
compact_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,10}")


class RecordError(HexShardError):
    """A record that cannot be loaded; the others can."""


class Record(NamedTuple):
    """The record that begins at line *number* (from 1): a key or Work, or else its *fault*."""

    number: int
    work: str | Work | None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns, or fields, of a record that make up the work."""

    key: str = "url"
    url: str | None = None  # beside the key: must hold a valid key as well
    payload: str | None = None  # JSON; WHOLE_RECORD for all of the record
    priority: str | None = None

    @property
    def named(self) -> list[str]:
        """Those that a record must have."""
        names = [self.key, self.url, self.payload, self.priority]
        return [name for name in names if name and name != WHOLE_RECORD]


def key_in(text: str, column: str) -> str:
    """The canonical key written in *column*; raises RecordError."""
    text = text.strip(" \t\r\n")
    if not text:
        raise RecordError(f"{shown(column)} is empty.")
    # A URL would lose a tab or a line end in silence.
    if control := _CONTROL.search(text):
        raise RecordError(f"{shown(column)} has {control[0]!a} inside it.")
    try:
        return canonical_key(text)
    except InvalidKeyError as error:
        raise RecordError(str(error)) from None


def check_url(text: str, column: str) -> None:
    """Raise RecordError unless *text*, from *column*, is a URL that can be requested."""
    if "://" not in key_in(text, column):
        raise RecordError(
            f"{shown(column)} holds no URL but {shown(text)}: one begins with https://."
        )


def priority_in(text: str, column: str) -> int:
    """The whole number written in *column*, 0 if it is empty; raises RecordError."""
    text = text.strip()
    if not text:
        return 0
    if not _WHOLE_NUMBER.fullmatch(text):
        raise RecordError(f"{shown(column)} is not a whole number but {shown(text)}.")
    return int(text)


def make_work(key: str, payload: str | None, priority: int) -> str | Work:
    """The key alone where that is all; raises PayloadError."""
    return Work(key, payload, priority) if payload is not None or priority else key


def listed(names: list[str]) -> str:
    """*names* as a sentence may show them: the text of a list may hold anything."""
    more = [f"and {len(names) - _COLUMNS_NAMED:,} more"] if len(names) > _COLUMNS_NAMED else []
    return ", ".join([*map(shown, names[:_COLUMNS_NAMED]), *more])
