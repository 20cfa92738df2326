"""When a worker is through with its shard: nothing that is left can become claimable any more."""

from __future__ import annotations

from collections.abc import Collection
from time import monotonic

from scrapy_hexshard.components.other_shards import Others, OtherShards
from scrapy_hexshard.components.store_thread import Claimed
from scrapy_hexshard.sharding import ShardSpec
from scrapy_hexshard.store.contract import Claim


class ShardEnd:
    """Judges by the last claim that brought nothing whether anything may still come.

    *lease_seconds* is for how long a worker of another shard is thought to live unseen.
    """

    def __init__(self, shard: ShardSpec, lease_seconds: float) -> None:
        self._shard = shard
        self._others = OtherShards(shard.index, lease_seconds, monotonic())
        self._left: Claimed | None = None

    def claimed(self, answer: Claimed) -> None:
        """A claim was answered."""
        self._left = answer

    def forget(self) -> None:
        """What was left then may have changed since."""
        self._left = None

    def is_reached(self, waiting: Collection[Claim], closing: int) -> bool:
        """Whether nothing more will come, for a worker that has no work but this.

        *waiting* are claims that it holds for requests of start(), *closing* is how many of its
        keys wait for a feed that is being stored.
        """
        if self._left is None or self._left.open is None:
            return False
        open_work = self._left.open
        # What is parked, here or by another worker of the shard, waits for a feed that may close no
        # sooner than its worker ends.
        left = open_work.running - open_work.parked + closing + open_work.failed
        if not waiting:
            over = left + open_work.pending == 0
            return over and self._judge_others() is not Others.AT_WORK
        # As long as these wait, what is pending are suspects that cannot be had; and if one of
        # these is a suspect itself, nothing can. Other shards may be in the same state, so that to
        # wait for them might be for ever.
        return left <= len(waiting) or any(claim.lone for claim in waiting)

    def missing(self) -> str | None:
        """A sentence about the shards with keys left that nobody works on, if there are any."""
        if self._left is None or self._judge_others() is not Others.MISSING:
            return None
        others = [each for each in self._left.shards if each.shard != self._shard.index]
        shards = ", ".join(f"shard {each.shard} (keys left: {each.keys})" for each in others)
        return f"No worker is at work on {shards}"

    def _judge_others(self) -> Others:
        """What other shards do; of interest only where pages may bring keys of other shards."""
        return self._others.judge(() if self._left is None else self._left.shards, monotonic())
