"""Feeds for tests: what is in their files, and a storage that stands in for a remote one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scrapy.extensions.feedexport import BlockingFeedStorage

PATIENCE = 30.0


def lines(path: Path) -> list[Any]:
    """The items in a file of JSON lines; it is an error if one is torn."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def feed(uri: Path | str, **options: Any) -> dict[str, Any]:
    """The settings for one feed of JSON lines."""
    return {"FEEDS": {str(uri): {"format": "jsonlines", **options}}}


class Remote(BlockingFeedStorage):
    """Keeps what it stores in memory, unless it is told to be slow or to fail.

    One class a test: see remote().
    """

    stored: dict[str, list[Any]]
    asked: list[str]
    failing: list[Exception]  # one for each of the next uploads
    open_for: threading.Event  # uploads wait for it

    def __init__(self, uri: str, *, feed_options: dict[str, Any] | None = None) -> None:
        self.uri = uri

    def _store_in_thread(self, file: Any) -> None:
        self.asked.append(self.uri)
        with file:
            assert self.open_for.wait(PATIENCE)
            if self.failing:
                raise self.failing.pop(0)
            file.seek(0)
            self.stored[self.uri] = [json.loads(line) for line in file]

    @classmethod
    def urls(cls) -> list[str]:
        """What the stored items are about."""
        return sorted(item["url"] for items in cls.stored.values() for item in items)


def remote(*failing: Exception, slow: bool = False) -> type[Remote]:
    """A storage of a test's own; the first uploads end with *failing*."""

    class Own(Remote):
        stored: dict[str, list[Any]] = {}  # noqa: RUF012
        asked: list[str] = []  # noqa: RUF012
        open_for = threading.Event()

    Own.stored, Own.asked, Own.failing = {}, [], list(failing)
    Own.open_for = threading.Event()
    if not slow:
        Own.open_for.set()
    return Own


def remote_feed(storage: type[Remote], count: int = 0, uri: str = "") -> dict[str, Any]:
    """The settings for a feed of that storage, in batches of *count* items."""
    settings = feed(uri or f"remote://host/{'%(batch_id)d' if count else 'all'}.jsonl")
    return {**settings, "FEED_STORAGES": {"remote": storage}, "FEED_EXPORT_BATCH_ITEM_COUNT": count}


@contextmanager
def opened(storage: type[Remote]) -> Iterator[None]:
    """Let its uploads go on at the end, whatever happens."""
    try:
        yield
    finally:
        storage.open_for.set()
