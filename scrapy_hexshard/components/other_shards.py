"""Whether the pages of other shards may still bring this one keys. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from scrapy_hexshard.store.contract import OpenShard


class Others(Enum):
    """What a shard that has nothing left to do finds of the others."""

    DONE = "done"
    AT_WORK = "at work"
    MISSING = "missing"  # keys are left, and nobody works on them


class OtherShards:
    """Judges the other shards for the worker of *shard*, which began at *now*.

    A shard is at work if one of its workers was seen within *lease_seconds*. The same time is given
    to those that have not started yet.
    """

    def __init__(self, shard: int, lease_seconds: float, now: float) -> None:
        self._shard = shard
        self._lease = lease_seconds
        self._patient_until = now + lease_seconds

    def judge(self, open_shards: Sequence[OpenShard], now: float) -> Others:
        """What the others are doing at *now*, given all shards that have keys left."""
        others = [each for each in open_shards if each.shard != self._shard]
        if not others:
            return Others.DONE
        seen = [each.seen for each in others if each.seen is not None]
        if now < self._patient_until or any(age < self._lease for age in seen):
            return Others.AT_WORK
        return Others.MISSING
