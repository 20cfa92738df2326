"""Reads a backend's SQL, which lives in files of its own, by the names written above each query."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from types import MappingProxyType

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def named_queries(backend: str) -> MappingProxyType[str, str]:
    """The SQL of each ``-- name: ...`` block in the backend's files; a name is used once."""
    queries: dict[str, str] = {}
    for text in _texts(backend):
        _, *parts = _NAME.split(text)
        for name, sql in zip(parts[::2], parts[1::2], strict=True):
            if name in queries:
                raise ValueError(f"Two queries of {backend} are named {name}.")
            queries[name] = sql.strip().removesuffix(";")
    return MappingProxyType(queries)


def statements(sql: str) -> list[str]:
    """The statements of a script, which must hold no semicolon inside one."""
    return [statement for part in sql.split(";") if (statement := part.strip())]


def _texts(backend: str) -> list[str]:
    folder = files("scrapy_hexshard.store") / "queries" / backend
    return [
        entry.read_text(encoding="utf-8")
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".sql")
    ]
