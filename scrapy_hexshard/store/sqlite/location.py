"""Where a store's file is: read from a path or URL, and looked at before anything is touched."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from urllib.parse import parse_qsl, unquote

from scrapy_hexshard.errors import StoreError, StoreUnavailableError
from scrapy_hexshard.store.sqlite.filesystems import network_filesystem

_PREFIX = "sqlite:///"
_SYNCHRONOUS = ("FULL", "NORMAL")


@dataclass(frozen=True, slots=True)
class Location:
    """The file of a store, with links resolved, and how hard its commits are pressed to disk."""

    path: Path
    synchronous: str = "FULL"

    @classmethod
    def parse(cls, given: str | os.PathLike[str]) -> Location:
        """The location in a path, ``sqlite:///relative`` or ``sqlite:////absolute``.

        A URL may end in ``?synchronous=NORMAL``. Raises StoreError for what cannot be read so.
        """
        text = os.fspath(given)
        if not text.startswith("sqlite:"):
            return cls(_file(text, text))
        if not text.startswith(_PREFIX):
            raise StoreError(
                f"Not a store URL: {text!r}. Write sqlite:///crawl.sqlite3 for a file in this "
                "folder, or sqlite:////data/crawl.sqlite3 for an absolute path."
            )
        path, _, query = text.removeprefix(_PREFIX).partition("?")
        return cls(_file(unquote(path), text), _read_synchronous(query))

    @property
    def exists(self) -> bool:
        """Whether a store may be there; an empty file is none yet."""
        try:
            return self.path.stat().st_size > 0
        except FileNotFoundError:
            return False

    def check(self, *, readonly: bool) -> None:
        """Raise StoreUnavailableError if no store can be used here, without touching anything."""
        self._check_file()
        folder = self.path.parent
        if not folder.is_dir():
            raise StoreUnavailableError(f"The folder {folder} of the store does not exist.")
        if kind := network_filesystem(folder):
            raise StoreUnavailableError(
                f"{self.path} is on a network file system ({kind}), where SQLite can lose data. "
                "Put the store on a local disk."
            )
        if not readonly:
            self._check_writable(folder)

    def _check_file(self) -> None:
        try:
            mode = self.path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):  # it may be made, or its folder is at fault
            return
        except OSError as error:
            raise StoreUnavailableError(f"Cannot open {self.path}: {error.strerror}.") from None
        if S_ISDIR(mode):
            raise StoreUnavailableError(f"{self.path} is a folder; a store is a file.")
        if not S_ISREG(mode):
            raise StoreUnavailableError(f"{self.path} is not a regular file; a store is one.")

    def _check_writable(self, folder: Path) -> None:
        if not os.access(folder, os.W_OK | os.X_OK):
            raise StoreUnavailableError(
                f"Cannot write in the folder {folder}, where the store keeps files beside "
                f"{self.path.name}. Give this user write access, or move the store."
            )
        if self.path.exists() and not os.access(self.path, os.R_OK | os.W_OK):
            raise StoreUnavailableError(f"Cannot write {self.path}. Give this user write access.")


def _file(path: str, given: str) -> Path:
    if not path or path == ":memory:" or "://" in path or "\x00" in path:
        raise StoreError(f"A store is a file that workers share: a path, not {given!r}.")
    # SQLite puts its files beside the real file, so the gate must be there too. Unlike
    # Path.resolve(), this bears a link that leads to itself.
    return Path(os.path.realpath(path))


def _read_synchronous(query: str) -> str:
    options = dict(parse_qsl(query, keep_blank_values=True))
    value = options.pop("synchronous", _SYNCHRONOUS[0]).upper()
    if options or value not in _SYNCHRONOUS:
        raise StoreError(
            f"Not an option of an SQLite store: {query!r}. It takes synchronous=FULL (the default) "
            "or synchronous=NORMAL."
        )
    return value
