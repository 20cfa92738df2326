"""Texts with ``{shard}`` and ``{shards}`` in them. Pure."""

from __future__ import annotations

import re

_PLACEHOLDER = re.compile(r"\{\{(shards?)\}\}|\{(shards?)\}")
_IN_BRACES = re.compile(r"\{[^{}]*\}")


def fill(text: str, shard: int, shards: int) -> str:
    """*text* with ``{shard}`` and ``{shards}`` replaced; ``{{shard}}`` stands for ``{shard}``.

    All other braces stay as they are, so that JSON survives.
    """
    numbers = {"shard": str(shard), "shards": str(shards)}
    return _PLACEHOLDER.sub(
        lambda match: f"{{{match[1]}}}" if match[1] else numbers[match[2]], text
    )


def has_shard(text: str) -> bool:
    """Whether *text* is another one for each shard, once filled."""
    return any(match[2] == "shard" for match in _PLACEHOLDER.finditer(text))


def has_unknown(text: str) -> bool:
    """Whether *text* has something in braces that fill() leaves as it is, such as ``{session}``."""
    return _IN_BRACES.search(_PLACEHOLDER.sub("", text)) is not None
