"""Reads JSON lines, one object a line, as Scrapy's feeds have them."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import Any

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
from scrapy_hexshard.errors import PayloadError
from scrapy_hexshard.keys import shown
from scrapy_hexshard.store.contract import Work


def read_json_lines(source: Input, columns: Columns) -> Iterator[Record]:
    """The objects of *source*, but for blank lines.

    Raises SettingError if the input cannot be read to its end.
    """
    for line in source.lines(LONGEST_RECORD):
        text = line.removeprefix(BOM_UTF8).strip()
        if text:
            yield _record(source, text, columns)


def _record(source: Input, text: bytes, columns: Columns) -> Record:
    if source.cut:
        return Record(source.line, None, f"A line has at most {LONGEST_RECORD:,} bytes.")
    try:
        return Record(source.line, _work(text.decode(), columns))
    except UnicodeDecodeError as error:
        return Record(source.line, None, not_utf_8(error))
    except (RecordError, PayloadError) as error:
        return Record(source.line, None, str(error))


def _work(text: str, columns: Columns) -> str | Work:
    fields = _object(text)
    key = key_in(_text(fields, columns.key, "text"), columns.key)
    if columns.url:
        check_url(_text(fields, columns.url, "text"), columns.url)
    payload = None
    if columns.payload == WHOLE_RECORD:
        # As it is written: the digits of a number stay, which Python might round.
        payload = text
    elif columns.payload and (value := _value(fields, columns.payload)) is not None:
        payload = compact_json(value)
    priority = 0
    if columns.priority and _value(fields, columns.priority) is not None:
        number = _text(fields, columns.priority, "a whole number")
        priority = priority_in(number, columns.priority)
    return make_work(key, payload, priority)


def _object(text: str) -> dict[str, Any]:
    try:
        fields = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        hint = " A line is one object; a list of them is no JSON lines." if text[0] == "[" else ""
        raise RecordError(f"Not JSON: {error.msg} at character {error.pos + 1}.{hint}") from None
    except (ValueError, RecursionError) as error:
        raise RecordError(f"Not JSON that can be read: {error}.") from None
    if not isinstance(fields, dict):
        raise RecordError(f"A line is one JSON object, not {_NAMES[type(fields)]}.")
    return fields


def _value(fields: dict[str, Any], name: str) -> Any:
    try:
        return fields[name]
    except KeyError:
        raise RecordError(f"No field {shown(name)}; there are: {listed([*fields])}.") from None


def _text(fields: dict[str, Any], name: str, wanted: str) -> str:
    value = _value(fields, name)
    if isinstance(value, str):
        return value
    # An id or a priority may be a number; true is none.
    if type(value) is int:
        return str(value)
    raise RecordError(f"{shown(name)} is not {wanted} but {_NAMES[type(value)]}.")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_NAMES = {
    dict: "an object",
    list: "a list",
    str: "text",
    int: "a number",
    float: "a number with a fraction",
    bool: "true or false",
    type(None): "null",
}
