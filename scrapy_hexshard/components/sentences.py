"""Shows a user the sentence of an error that ends a crawl, where Scrapy would print a traceback."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from twisted.logger import LogEvent, LogLevel, eventAsText, globalLogBeginner

from scrapy_hexshard.errors import HexShardError

logger = logging.getLogger(__name__)

# Those that log what a crawl raised before it began: under asyncio, with a reactor or without, and
# under any other reactor, where the line of _HEADING comes first.
_LOGGERS = ("asyncio", "twisted")
_HEADING = "Unhandled error in Deferred:"


@contextmanager
def in_a_sentence() -> Iterator[None]:
    """Let a HexShardError of the block, which ends the crawl, be logged as its sentence alone."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
    try:
        yield
    except HexShardError:
        _keep_off_stderr()
        raise


class _SentenceFilter(logging.Filter):
    """Replaces the traceback of a HexShardError, and the line above it, by the sentence."""

    def __init__(self) -> None:
        super().__init__()
        self._heading: logging.LogRecord | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        heading, self._heading = self._heading, None
        if record.getMessage() == _HEADING and heading is None:
            self._heading = record
            return False
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HexShardError):
            logger.critical("%s", error)
            return False
        if heading is not None:
            logging.getLogger(record.name).callHandlers(heading)
        return True


_FILTER = _SentenceFilter()


@cache
def _keep_off_stderr() -> None:
    """Twisted also writes what is critical to stderr, until somebody says where to log.

    Say that it goes there still, but for what is said in a sentence.
    """
    show = warnings.showwarning
    observers: list[Any] = [_write_to_stderr]
    globalLogBeginner.beginLoggingTo(observers, discardBuffer=True, redirectStandardIO=False)
    warnings.showwarning = show


def _write_to_stderr(event: LogEvent) -> None:
    failure = event.get("log_failure")
    said = failure is not None and failure.check(HexShardError)
    if event.get("log_level") is LogLevel.critical and event.get("log_format") != _HEADING:
        sys.stderr.write("" if said else f"{eventAsText(event)}\n")
