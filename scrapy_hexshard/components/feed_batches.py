"""The batches of Scrapy's feeds, and what becomes of each.

A batch is one file of a feed: all of it, or as much as ``FEED_EXPORT_BATCH_ITEM_COUNT`` says.
FeedExporter says *closed* of one that could not be stored, too, so its storage is watched.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import IO, Any
from weakref import WeakKeyDictionary

from scrapy import Spider
from scrapy.extensions.feedexport import FeedSlot, FileFeedStorage, StdoutFeedStorage
from scrapy.utils.defer import ensure_awaitable

from scrapy_hexshard.components.feed_files import (
    LINE_FORMATS,
    FeedFile,
    FeedFiles,
    end_torn_line,
    new_folders,
)


class NotStored(Exception):  # noqa: N818 - its name is part of an outcome
    """A batch that was still open when Scrapy's FeedExporter had ended."""


class Batch:
    """One file of a feed; *file* is None unless it is a local one."""

    def __init__(self) -> None:
        self.file: FeedFile | None = None
        self.error: BaseException | None = None
        self.ended = False  # stored, or with an error


class FeedBatches:
    """The batches of a crawl; *on_end* is called with each that was stored, or could not be.

    Those in local files are given to *files*.
    """

    def __init__(self, files: FeedFiles, on_end: Callable[[Batch], None]) -> None:
        self._files = files
        self._on_end = on_end
        self._of_slot: WeakKeyDictionary[FeedSlot, Batch] = WeakKeyDictionary()
        self._open: set[Batch] = set()

    def of(self, slot: FeedSlot) -> Batch:
        """The batch of *slot*, whose storage is watched from the first call on."""
        batch = self._of_slot.get(slot)
        if batch is None:
            batch = self._of_slot[slot] = Batch()
            storage = slot.storage
            # Scrapy has no hook to assign to: these are its methods, replaced on purpose.
            vars(storage).update(
                open=partial(self._opened, batch, slot, storage.open),
                store=partial(self._store, batch, storage.store),
            )
        return batch

    def end(self, batch: Batch, error: BaseException | None = None) -> None:
        """*batch* has been stored, or cannot be, because of *error*."""
        self._open.discard(batch)
        batch.ended, batch.error = True, error
        if batch.file is not None:
            self._files.closed(batch.file)
        self._on_end(batch)

    def end_all(self) -> None:
        """What is open now will never be stored."""
        for batch in list(self._open):
            self.end(batch, NotStored())

    def _opened(
        self, batch: Batch, slot: FeedSlot, opening: Callable[[Spider], IO[bytes]], spider: Spider
    ) -> IO[bytes]:
        storage = slot.storage
        path = Path(storage.path) if isinstance(storage, FileFeedStorage) else None
        folders = [] if path is None else new_folders(path)
        file = opening(spider)
        self._open.add(batch)
        if path is not None or isinstance(storage, StdoutFeedStorage):
            batch.file = FeedFile(file, str(path or "on standard output"), folders)
        if path is not None and path.is_file() and _has_plain_lines(slot):
            end_torn_line(file, path)
        return file

    def _store(
        self, batch: Batch, storing: Callable[[IO[bytes]], Any], file: IO[bytes]
    ) -> Awaitable[None] | None:
        try:
            result = storing(file)
            if batch.file is not None:
                batch.file.flush()
        except Exception as error:
            self.end(batch, error)
            raise
        if result is None:
            self.end(batch)
            return None
        return self._stored(batch, result)

    async def _stored(self, batch: Batch, result: Any) -> None:
        try:
            await ensure_awaitable(result)
        except BaseException as error:
            self.end(batch, error)
            raise
        self.end(batch)


def _has_plain_lines(slot: FeedSlot) -> bool:
    return slot.format in LINE_FORMATS and not slot.feed_options.get("postprocessing")
