"""The lists that ``load`` and ``plan`` read: their options, their formats, their records."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from scrapy_hexshard.cli.csv_records import check_csv_header, read_csv
from scrapy_hexshard.cli.inputs import STDIN, Input, check_readable, is_file
from scrapy_hexshard.cli.json_records import read_json_lines
from scrapy_hexshard.cli.key_lines import read_key_lines
from scrapy_hexshard.cli.record import WHOLE_RECORD, Columns, Record
from scrapy_hexshard.errors import SettingError

LINES, CSV, JSONL = "lines", "csv", "jsonl"
_BY_SUFFIX = {".csv": CSV, ".jsonl": JSONL, ".jl": JSONL, ".ndjson": JSONL}
_COLUMN_OPTIONS = ("field", "id_field", "payload_field", "priority")


def add_listing_arguments(parser: ArgumentParser) -> None:
    """Add the inputs and the options that say how to read them."""
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="list, also compressed with gzip; - for stdin"
    )
    add = parser.add_argument_group("how to read the lists").add_argument
    add(
        "--format",
        choices=(LINES, CSV, JSONL),
        help="one key a line, CSV with a header, or one JSON object a line (default: by the "
        "suffix .csv, .jsonl, .jl or .ndjson, else lines)",
    )
    add("--field", metavar="NAME", help="column or field of the key (default: url)")
    add(
        "--id-field",
        metavar="NAME",
        help="the key is the id in this column; the whole record becomes its payload",
    )
    add(
        "--payload-field",
        metavar="NAME",
        help="the payload is in this column: JSON text in CSV, any value in JSON lines; "
        f"{WHOLE_RECORD} for the whole record",
    )
    add(
        "--priority",
        metavar="NAME",
        help="the priority is in this column: a whole number, higher first",
    )


class Listing:
    """The records of several inputs, one input after the other.

    Raises SettingError, and has changed nothing then, for an input that is not there, options that
    do not fit, and a CSV file whose header lacks a column.
    """

    def __init__(self, arguments: Namespace) -> None:
        self.names: Sequence[str] = arguments.files
        self.name = ""  # the input that is being read
        self._columns = _columns(arguments)
        self._inputs = [(name, arguments.format or _guessed(name)) for name in self.names]
        self._finished = 0  # bytes of the inputs before this one
        self._input: Input | None = None
        self._check(arguments)

    @property
    def noun(self) -> str:
        """What one of its records is called."""
        return "line" if all(form == LINES for _, form in self._inputs) else "record"

    @property
    def reads_stdin(self) -> bool:
        return STDIN in self.names

    @property
    def is_checked(self) -> bool:
        """Whether nothing is left to refuse at the beginning of an input."""
        return all(form != CSV or is_file(name) for name, form in self._inputs)

    @property
    def size(self) -> int | None:
        """The bytes of all inputs as they are stored; None if one of them is no file."""
        if not all(map(is_file, self.names)):
            return None
        return sum(os.stat(name).st_size for name in self.names)  # noqa: PTH116

    @property
    def position(self) -> int:
        """How many of these bytes have been read."""
        return self._finished + (self._input.position if self._input else 0)

    def __iter__(self) -> Iterator[Record]:
        for name, form in self._inputs:
            with Input(name) as source:
                self.name, self._input = name, source
                yield from self._records(source, form)
                self._input = None
                self._finished += source.position

    def _records(self, source: Input, form: str) -> Iterator[Record]:
        if form == CSV:
            return read_csv(source, self._columns)
        if form == JSONL:
            return read_json_lines(source, self._columns)
        return read_key_lines(source)

    def _check(self, arguments: Namespace) -> None:
        given = [option for option in _COLUMN_OPTIONS if getattr(arguments, option) is not None]
        for name, form in self._inputs:
            check_readable(name)
            if form == LINES and given:
                raise SettingError(
                    f"--{given[0].replace('_', '-')} is for CSV and JSON lines, but {name} is read "
                    "as one key a line. Add --format csv or --format jsonl."
                )
            if form == CSV and is_file(name):
                with Input(name) as source:
                    check_csv_header(source, self._columns)


def _columns(arguments: Namespace) -> Columns:
    payload = arguments.payload_field
    if arguments.id_field is None:
        return Columns(arguments.field or "url", None, payload, arguments.priority)
    # An id alone does not say what to request; the record does.
    payload = payload or WHOLE_RECORD
    return Columns(arguments.id_field, arguments.field, payload, arguments.priority)


def _guessed(name: str) -> str:
    suffix = PurePath(name.lower().removesuffix(".gz")).suffix
    if suffix == ".json":
        raise SettingError(
            f"{name} may be one JSON document or one object a line. If each line is an object, add "
            "--format jsonl; else convert it first, as with jq -c '.[]'."
        )
    return _BY_SUFFIX.get(suffix, LINES)
