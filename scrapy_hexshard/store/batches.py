"""Turns keys as callers give them into rows: canonical, digested, in batches of bounded size."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from scrapy_hexshard.errors import InvalidKeyError, PayloadError
from scrapy_hexshard.keys import canonical_key, digest, shown
from scrapy_hexshard.store.contract import Work

BATCH_ROWS = 10_000
BATCH_PAYLOAD_CHARACTERS = 8_000_000
DIGEST_BYTES = 16


class KeyRow(NamedTuple):
    """A key ready to be stored; the owner follows from the digest."""

    digest: bytes
    key: str
    payload: str | None
    priority: int


def key_row(given: str | Work) -> KeyRow:
    """The row of a key or Work; raises InvalidKeyError."""
    if isinstance(given, str):
        key, payload, priority = canonical_key(given), None, 0
    elif isinstance(given, Work):
        key, payload, priority = canonical_key(given.key), given.payload, given.priority
    else:
        raise InvalidKeyError(f"A key is text or Work, not {type(given).__name__}.")
    return KeyRow(digest(key)[:DIGEST_BYTES], key, payload, priority)


def key_batches(keys: Iterable[str | Work]) -> Iterator[list[KeyRow]]:
    """The rows of *keys* in batches, none of which takes more than a few megabytes."""
    if isinstance(keys, str | bytes | Work):
        raise TypeError("Keys come as a list or another iterable: put it into one.")
    batch: list[KeyRow] = []
    size = 0
    for given in keys:
        row = key_row(given)
        batch.append(row)
        size += len(row.payload or "")
        if len(batch) >= BATCH_ROWS or size >= BATCH_PAYLOAD_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def item_text(item: object, key: str) -> str:
    """The item, one line of JSON text; raises PayloadError, naming *key*, if it is no JSON."""
    if not isinstance(item, str):
        raise PayloadError(
            f"An item of {shown(key)} is JSON text, not {type(item).__name__}: use json.dumps."
        )
    try:
        item.encode()
        json.loads(item)
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"An item of {shown(key)} is not JSON: {error}.") from None
    # In JSON, line ends are white space only, so that a space does as well.
    return item.replace("\r", " ").replace("\n", " ")
