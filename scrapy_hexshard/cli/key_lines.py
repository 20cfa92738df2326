"""Reads a list of keys, one a line, and says what is wrong with the lines that are none."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator

from scrapy_hexshard.cli.inputs import Input
from scrapy_hexshard.cli.record import Record
from scrapy_hexshard.errors import InvalidKeyError
from scrapy_hexshard.keys import canonical_key

# Far more than a key may have, and little enough to hold whatever the input is.
_LONGEST_LINE = 65_536
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
# A host with a dot in it (or localhost, or an IPv4 address) and a path, but no scheme or too few
# slashes after it. A dotted word alone is as likely an id.
_HOST_AND_PATH = re.compile(
    r"(?:https?:(?!//[^/]))?/*(?:(?:[\w-]+\.)+[^\W\d_][\w-]+|localhost|\d{1,3}(?:\.\d{1,3}){3})(?::\d+)?/",
    re.IGNORECASE,
)

_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#]")


def read_key_lines(source: Input) -> Iterator[Record]:
    """The lines of *source*, but for blank ones and those with ``#`` first.

    Memory stays flat whatever the length of the input or of one line. Raises SettingError if the
    input cannot be read to its end.
    """
    for line in source.lines(_LONGEST_LINE):
        # Lists that were joined have a byte-order mark further down, too.
        text = line.removeprefix(BOM_UTF8).strip()
        if text and not text.startswith(b"#"):
            yield _record(source.line, text)


def lacks_scheme(key: str) -> bool:
    """Whether a canonical *key* looks like a URL and is none: without scheme or host, or quoted."""
    broken = "://" in key and _URL.match(key) is None
    return broken or _HOST_AND_PATH.match(key) is not None


def _record(number: int, text: bytes) -> Record:
    # A URL would lose a tab in silence, and with it the border between two columns.
    if control := _CONTROL.search(text):
        hint = " Convert UTF-16 to UTF-8." if control[0] == b"\0" else ""
        fault = f"A line is one key; this one has {control[0].decode()!a} inside it.{hint}"
        return Record(number, None, fault)
    try:
        return Record(number, canonical_key(text.decode()))
    except UnicodeDecodeError as error:
        return Record(number, None, not_utf_8(error))
    except InvalidKeyError as error:
        return Record(number, None, str(error))


def not_utf_8(error: UnicodeDecodeError) -> str:
    """What is wrong with a line that cannot be decoded."""
    return f"Not UTF-8 text: byte {error.start + 1} is 0x{error.object[error.start]:02x}."
