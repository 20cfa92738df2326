"""How evenly something is spread over the shards, in one line however many there are."""

from __future__ import annotations

from collections.abc import Sequence

_SHARDS_NAMED = 16


def spread(counts: Sequence[int]) -> str:
    """The count of each shard, or the least and the most of many: ``0: 12, 1: 11``."""
    if len(counts) <= _SHARDS_NAMED:
        return ", ".join(f"{shard}: {count:,}" for shard, count in enumerate(counts))
    least, most = min(counts), max(counts)
    return (
        f"from {least:,} (shard {counts.index(least)}) to {most:,} (shard {counts.index(most)}) "
        f"on {len(counts):,} shards"
    )
