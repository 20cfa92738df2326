"""The text of a variable, or of the file that another variable names, as secrets are mounted."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scrapy_hexshard.errors import SettingError

MAX_FILE_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Source:
    """A text, and what messages call it. Its repr does not show the text."""

    name: str
    text: str = field(repr=False)
    open_to_others: bool = False  # it is in a file that others can read


def read_source(environ: Mapping[str, str], variable: str, file_variable: str) -> Source | None:
    """The text of *variable*, or of the file that *file_variable* names; None if neither is set.

    Raises SettingError if both are set, or for a file that cannot be read or holds more than one
    line: it names variable and path, and not a word of what the file holds.
    """
    text = environ.get(variable, "")
    path = environ.get(file_variable, "")
    if text.strip() and path.strip():
        raise SettingError(f"{variable} and {file_variable} are both set: unset one of them.")
    if path.strip():
        return _read(_name(file_variable, path), Path(path))
    return Source(variable, text) if text.strip() else None


def _name(variable: str, path: str) -> str:
    # What is there may be a proxy URL by mistake, with all its secrets.
    is_surely_a_path = path.startswith("/") and "@" not in path and path.isprintable()
    return f"{variable} ({path})" if is_surely_a_path else variable


def _read(name: str, path: Path) -> Source:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SettingError(f"{name} names a file that cannot be read: {error.strerror}.") from None
    if len(data) > MAX_FILE_BYTES:
        raise SettingError(f"{name} names a file of more than {MAX_FILE_BYTES:,} bytes.")
    is_open = stat.S_ISREG(mode) and bool(mode & (stat.S_IRGRP | stat.S_IROTH))
    return Source(name, _only_line(name, data), is_open)


def _only_line(name: str, data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SettingError(f"{name} names a file that is not UTF-8 text.") from None
    line = text.removesuffix("\n").removesuffix("\r")
    if not line.strip():
        raise SettingError(f"{name} names a file that is empty.")
    if "\n" in line or "\r" in line:
        raise SettingError(f"{name} names a file of several lines: it is to hold one URL alone.")
    return line
