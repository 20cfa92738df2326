"""Keeps count of the records that were rejected, and writes all of them to a file if asked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Self

from scrapy_hexshard.errors import HexShardError, SettingError

_SHOWN = 10
_SQLITE_MAGIC = b"SQLite format 3\0"


class Rejects:
    """The rejected records of a run. A context manager that closes the file, if there is one.

    With *path*, each one is a line of JSON there: ``{"file": ..., "line": ..., "reason": ...}``.
    The file is replaced, but for one that is an input in *names* or a database: SettingError.
    """

    def __init__(self, path: Path | None = None, names: Sequence[str] = ()) -> None:
        self.count = 0
        self._first: list[str] = []
        self._path = path
        self._file: IO[str] | None = None
        if path is not None:
            _check_replaceable(path, names)
            with _writing(path):
                self._file = path.open("w", encoding="utf-8", errors="surrogateescape")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            with _writing(Path(self._file.name)):
                self._file.close()

    def add(self, name: str, line: int, reason: str) -> None:
        """Note the record of input *name* that begins at *line*."""
        self.count += 1
        if len(self._first) < _SHOWN:
            self._first.append(f"{name}:{line}: {reason}")
        if self._file is not None:
            with _writing(Path(self._file.name)):
                rejected = {"file": name, "line": line, "reason": reason}
                self._file.write(json.dumps(rejected, ensure_ascii=False) + "\n")

    def sentences(self, noun: str) -> Iterator[str]:
        """The first of them and how many there were; a record is called a *noun*."""
        if not self.count:
            return
        yield from self._first
        if self.count > len(self._first):
            more = f" All of them are in {self._path}." if self._path else ""
            yield f"... and {self.count - len(self._first):,} more.{more}"
        yield f"Warning: {counted(self.count, noun, 'was', 'were')} not valid and left out."


def counted(count: int, noun: str, one: str, many: str) -> str:
    """*count* things and their verb, such as ``1 line was`` or ``2 lines were``."""
    return f"1 {noun} {one}" if count == 1 else f"{count:,} {noun}s {many}"


def _check_replaceable(path: Path, names: Sequence[str]) -> None:
    if not path.is_file():
        return
    if any(path.samefile(name) for name in names if Path(name).is_file()):
        raise SettingError(f"{path} is an input: name another file for the rejected records.")
    with _writing(path), path.open("rb") as old:
        if old.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC:
            raise SettingError(f"{path} is a database: name another file for the rejected records.")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HexShardError(f"Cannot write {path}: {error.strerror}.") from error
