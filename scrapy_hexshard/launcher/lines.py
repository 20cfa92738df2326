"""Cuts a worker's output into lines without secrets."""

from __future__ import annotations

from collections.abc import Iterator

from scrapy_hexshard.redaction import Redactor

MAX_LINE_BYTES = 65_536


class RedactedLines:
    """Lines of a stream that arrives in chunks; one longer than *limit* comes in pieces.

    Joined together, the lines are the stream with its secrets hidden, whatever the chunks were.
    """

    def __init__(self, redactor: Redactor, limit: int = MAX_LINE_BYTES) -> None:
        self._redactor = redactor
        self._limit = limit
        self._held = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What *data* completes: lines with their line end, or pieces without."""
        # No secret holds a line end, so what comes before one is settled.
        complete, end, self._held = (self._held + data).rpartition(b"\n")
        if end:
            yield from _lines(self._redactor.hide(complete) + end)
        if len(self._held) > self._limit:
            piece, self._held = self._redactor.split(self._held)
            if piece:
                yield piece

    def end(self) -> bytes:
        """What is left when the stream has ended, which may be empty."""
        held, self._held = self._held, b""
        return self._redactor.hide(held)


def _lines(text: bytes) -> Iterator[bytes]:
    return (line + b"\n" for line in text.split(b"\n")[:-1])
