"""Reads CSV with a header line; a cell in quotes may hold line ends."""

from __future__ import annotations

import csv
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import TYPE_CHECKING

from scrapy_hexshard.cli.inputs import Input
from scrapy_hexshard.cli.key_lines import not_utf_8
from scrapy_hexshard.cli.record import (
    LONGEST_RECORD,
    WHOLE_RECORD,
    Columns,
    Record,
    RecordError,
    check_url,
    compact_json,
    key_in,
    listed,
    make_work,
    priority_in,
)
from scrapy_hexshard.errors import PayloadError, SettingError
from scrapy_hexshard.keys import shown
from scrapy_hexshard.store.contract import MAX_PAYLOAD_BYTES, Work

if TYPE_CHECKING:
    from _csv import Reader


class _Lines:
    """The decoded lines of an input, as the csv module asks for them."""

    def __init__(self, source: Input) -> None:
        self._source = source
        self._lines = source.lines(LONGEST_RECORD)
        self.begin_record()

    def begin_record(self) -> int:
        """The line at which the next record begins."""
        self.undecodable = ""
        self._size = 0
        return self._source.line + 1

    @property
    def last(self) -> int:
        return self._source.line

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        if self._source.line == 1:
            line = line.removeprefix(BOM_UTF8)
        self._size += len(line)
        if self._size > LONGEST_RECORD or self._source.cut:
            raise csv.Error(f"it is longer than {LONGEST_RECORD:,} bytes")
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            self.undecodable = self.undecodable or not_utf_8(error)
            # So that the record ends where it does.
            return line.decode(errors="surrogateescape")


def read_csv(source: Input, columns: Columns) -> Iterator[Record]:
    """The rows of *source* below its header, but for blank lines.

    Raises SettingError if the header lacks a column or the input cannot be read to its end.
    """
    csv.field_size_limit(MAX_PAYLOAD_BYTES)  # a cell may be a payload; it is for all readers
    lines = _Lines(source)
    rows = csv.reader(lines, strict=True)
    header = _header(rows, lines, source)
    _check_header(header, columns, source.name)
    pick = _Picker(header, columns)
    while True:
        start = lines.begin_record()
        try:
            row = next(rows, None)
        except csv.Error as error:
            yield Record(start, None, _not_csv(error, start, lines.last))
            continue
        if row is None:
            return
        if row:
            yield _record(start, row, lines.undecodable, pick)


def check_csv_header(source: Input, columns: Columns) -> None:
    """Raise SettingError unless the header of *source* has the columns."""
    next(read_csv(source, columns), None)


def _header(rows: Reader, lines: _Lines, source: Input) -> list[str]:
    if source.is_utf_16:
        raise SettingError(f"{source.name} is UTF-16 text: convert it to UTF-8.")
    try:
        header = next(filter(None, rows), None)
    except csv.Error as error:
        raise SettingError(
            f"{source.name} has no header. {_not_csv(error, 1, lines.last)}"
        ) from None
    if header is None:
        raise SettingError(f"{source.name} is empty: CSV begins with the names of the columns.")
    if lines.undecodable:
        raise SettingError(f"The header of {source.name} is not UTF-8 text: convert the file.")
    return [name.strip() for name in header]


def _check_header(header: list[str], columns: Columns, name: str) -> None:
    for column in columns.named:
        if column not in header:
            raise SettingError(
                f"There is no column {shown(column)} in {name}; its columns are: {listed(header)}."
            )
    needed = header if columns.payload == WHOLE_RECORD else columns.named
    for column in needed:
        if header.count(column) > 1:
            raise SettingError(f"The column {shown(column)} is in the header of {name} twice.")


def _not_csv(error: csv.Error, start: int, last: int) -> str:
    reason = str(error)
    if reason == "unexpected end of data":
        reason = "a quote is not closed before the end"
    span = f" (lines {start} to {last})" if last > start else ""
    return f"Not CSV: {reason}{span}."


class _Picker:
    """Takes the work out of the rows below one header."""

    def __init__(self, header: list[str], columns: Columns) -> None:
        self._header = header
        self._columns = columns
        self._key = header.index(columns.key)
        self._url = header.index(columns.url) if columns.url else None
        self._priority = header.index(columns.priority) if columns.priority else None
        self._payload = None
        if columns.payload and columns.payload != WHOLE_RECORD:
            self._payload = header.index(columns.payload)

    def work(self, row: list[str]) -> str | Work:
        """The work of *row*; raises RecordError or PayloadError."""
        if len(row) != len(self._header):
            raise RecordError(f"{len(row)} cells, where the header has {len(self._header)}.")
        key = key_in(row[self._key], self._columns.key)
        if self._url is not None:
            check_url(row[self._url], self._header[self._url])
        priority = 0
        if self._priority is not None:
            priority = priority_in(row[self._priority], self._header[self._priority])
        return make_work(key, self._payload_of(row), priority)

    def _payload_of(self, row: list[str]) -> str | None:
        if self._columns.payload == WHOLE_RECORD:
            fields = dict(zip(self._header, row, strict=True))
            return compact_json(fields)
        if self._payload is None:
            return None
        return row[self._payload].strip() or None


def _record(start: int, row: list[str], undecodable: str, pick: _Picker) -> Record:
    if undecodable:
        return Record(start, None, undecodable)
    try:
        return Record(start, pick.work(row))
    except (RecordError, PayloadError) as error:
        return Record(start, None, str(error))
