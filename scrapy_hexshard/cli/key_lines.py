"""Reads a list of keys, one a line, and says what is wrong with the lines that are none."""

from __future__ import annotations

import os
import re
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

from scrapy_hexshard.errors import InvalidKeyError, SettingError
from scrapy_hexshard.keys import canonical_key

STDIN = "-"
# Far more than a key may have, and little enough to hold whatever the input is.
_LONGEST_LINE = 65_536
_GZIP_MAGIC = b"\x1f\x8b"
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
# A host with a dot in it (or localhost, or an IPv4 address) and a path, but no scheme or too few
# slashes after it. A dotted word alone is as likely an id.
_HOST_AND_PATH = re.compile(
    r"(?:https?:(?!//[^/]))?/*(?:(?:[\w-]+\.)+[^\W\d_][\w-]+|localhost|\d{1,3}(?:\.\d{1,3}){3})(?::\d+)?/",
    re.IGNORECASE,
)


class KeyLine(NamedTuple):
    """A line's *number* (from 1) with its canonical *key*, or with the *fault* that it has."""

    number: int
    key: str = ""
    fault: str = ""


def check_readable(name: str) -> None:
    """Raise SettingError unless there is a file *name* to read, or stdin if it is ``-``."""
    # Without opening it: a pipe can be opened only once.
    problem = ""
    if name == STDIN:
        problem = "" if sys.stdin else "it is closed"
    elif not Path(name).exists():
        problem = "there is no such file"
    elif Path(name).is_dir():
        problem = "it is a folder"
    elif not os.access(name, os.R_OK):
        problem = "permission denied"
    if problem:
        raise SettingError(f"Cannot read {name}: {problem}. Nothing was loaded.")


def read_key_lines(name: str) -> Iterator[KeyLine]:
    """The lines of the file *name* (``-`` is stdin), but for blank ones and those with ``#`` first.

    Memory stays flat whatever the length of the input or of one line. Raises SettingError if the
    input is compressed or cannot be read to its end.
    """
    try:
        with _opened(name) as source:
            for number, line in enumerate(_bounded_lines(source, name), 1):
                # Lists that were joined have a byte-order mark further down, too.
                text = line.removeprefix(BOM_UTF8).strip()
                if text and not text.startswith(b"#"):
                    yield _key_line(number, text)
    except OSError as error:
        raise SettingError(f"Cannot read {name} to its end: {error.strerror}.") from error


def lacks_scheme(key: str) -> bool:
    """Whether *key*, which counts as an id, looks like a URL written without its scheme."""
    return _HOST_AND_PATH.match(key) is not None


def _opened(name: str) -> BufferedReader:
    if name == STDIN:
        return os.fdopen(sys.stdin.fileno(), "rb", closefd=False)
    return Path(name).open("rb")


def _bounded_lines(source: BufferedReader, name: str) -> Iterator[bytes]:
    if source.peek(2).startswith(_GZIP_MAGIC):
        raise SettingError(
            f"{name} is compressed. Try: gzip -dc {name} | hexdigest-shard load ... -"
        )
    while line := source.readline(_LONGEST_LINE):
        rest = line
        while len(rest) == _LONGEST_LINE and not rest.endswith(b"\n"):
            rest = source.readline(_LONGEST_LINE)
        yield line


def _key_line(number: int, text: bytes) -> KeyLine:
    # A URL would lose a tab in silence, and with it the border between two columns.
    if control := _CONTROL.search(text):
        hint = " Convert UTF-16 to UTF-8." if control[0] == b"\0" else ""
        fault = f"A line is one key; this one has {control[0].decode()!a} inside it.{hint}"
        return KeyLine(number, fault=fault)
    try:
        return KeyLine(number, canonical_key(text.decode()))
    except UnicodeDecodeError as error:
        fault = f"Not UTF-8 text: byte {error.start + 1} is 0x{text[error.start]:02x}."
        return KeyLine(number, fault=fault)
    except InvalidKeyError as error:
        return KeyLine(number, fault=str(error))
