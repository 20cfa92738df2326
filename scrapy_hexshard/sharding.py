"""Which shard owns a key. Pure arithmetic, published, and the same for ever."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from scrapy_hexshard.errors import ShardError
from scrapy_hexshard.keys import canonical_key, digest

SHARD_VARIABLE = "CRAWL_SHARD"
SHARDS_VARIABLE = "CRAWL_SHARDS"
MAX_SHARDS = 65_536

_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """A worker's zero-based shard *index* and the fixed *count* of shards.

    Raises ShardError unless ``0 <= index < count <= 65536``.
    """

    index: int
    count: int

    def __post_init__(self) -> None:
        check_count(self.count)
        if not _is_int(self.index) or not 0 <= self.index < self.count:
            raise ShardError(
                f"Shard {self.index!r} does not exist: with {self.count} shards the index goes "
                f"from 0 to {self.count - 1}."
            )

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @classmethod
    def parse(cls, text: str) -> ShardSpec:
        """The spec written as ``index/count``, such as ``2/4``; the index starts at 0."""
        index, slash, count = text.strip().partition("/")
        if not slash:
            raise ShardError(f"A shard is written index/count, such as 2/4, not {text!r}.")
        return cls(parse_number(index, "the shard index"), parse_number(count, "the shard count"))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> ShardSpec:
        """The spec in ``CRAWL_SHARD`` and ``CRAWL_SHARDS``.

        Raises ShardError when either is missing: a guessed shard would crawl the wrong keys in
        silence.
        """
        missing = [name for name in (SHARD_VARIABLE, SHARDS_VARIABLE) if not environ.get(name)]
        if missing:
            raise ShardError(
                f"{' and '.join(missing)} not set. Set both {SHARD_VARIABLE} (from 0) and "
                f"{SHARDS_VARIABLE}, or start the workers with hexdigest-shard run."
            )
        return cls(
            parse_number(environ[SHARD_VARIABLE], SHARD_VARIABLE),
            parse_number(environ[SHARDS_VARIABLE], SHARDS_VARIABLE),
        )

    def owns(self, key: str) -> bool:
        """Whether this shard owns *key*, in any spelling; raises InvalidKeyError."""
        return stable_owner(key, self.count) == self.index

    def legacy_owns_rowid(self, rowid: int) -> bool:
        """Whether this shard owned row *rowid* under the older plan by row number."""
        return legacy_rowid_owner(rowid, self.count) == self.index


def stable_owner(key: str, count: int) -> int:
    """The index of the shard that owns *key*, in any spelling, among *count* shards.

    It is the first 8 bytes of the SHA-256 of the canonical key, big-endian, modulo *count*.
    Raises InvalidKeyError or ShardError.
    """
    check_count(count)
    return digest_owner(digest(canonical_key(key)), count)


def digest_owner(key_digest: bytes, count: int) -> int:
    """The owner of the canonical key whose digest (at least 8 bytes) is given."""
    return int.from_bytes(key_digest[:8], "big") % count


def legacy_rowid_owner(rowid: int, count: int) -> int:
    """The owner of row *rowid* under the older plan, ``rowid % count``.

    It is kept for lists that were split by row number; a row number changes when the list does,
    which is why keys replaced it.
    """
    check_count(count)
    if not _is_int(rowid) or rowid < 0:
        raise ShardError(f"A row number is a whole number from 0, not {rowid!r}.")
    return rowid % count


def assigned_indices(total: int, spec: ShardSpec) -> range:
    """The positions, of *total* in a list, that fall to *spec* when it is split by position."""
    if not _is_int(total) or total < 0:
        raise ShardError(f"The length of a list is a whole number from 0, not {total!r}.")
    return range(spec.index, total, spec.count)


def check_count(count: int) -> int:
    """*count* itself; raises ShardError unless it is a possible number of shards."""
    if not _is_int(count) or not 1 <= count <= MAX_SHARDS:
        raise ShardError(
            f"The number of shards is a whole number from 1 to {MAX_SHARDS}, not {count!r}."
        )
    return count


def parse_number(text: str, what: str) -> int:
    """The whole number written in *text*; raises ShardError naming *what* it was for."""
    # int() would also take "01", "1_0", " 1 " and digits of other scripts.
    if not _NUMBER.fullmatch(text):
        raise ShardError(f"{what} is a whole number from 0, such as 3, not {text!r}.")
    return int(text)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
