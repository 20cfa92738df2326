"""What of a shard is still open, and when a worker of it should look again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scrapy_hexshard.store.clock import StoreClock
from scrapy_hexshard.store.contract import OpenWork

# How soon to look again when only what the asking worker holds itself keeps the rest from it.
OWN_TURN = 1.0


def open_work(row: Sequence[Any], clock: StoreClock) -> OpenWork:
    """The answer to a worker from the *row* that the query of that name found for it."""
    pending, running, failed, stored, is_ready, retry, lapse, own, in_flight, lone, parked = row
    now = clock.now(stored)
    waits = [max(0, at - now) / 1000 for at in (retry, lapse) if at is not None]
    if pending:
        # The suspects that are left go to a worker that has nothing in flight.
        waits.append(OWN_TURN if in_flight and not is_ready else 0.0)
    if own is not None:
        waits.append((own - now) / 1000 if own > now else OWN_TURN)
    if lone:
        waits = [max(OWN_TURN, wait) for wait in waits]
    return OpenWork(pending, running, failed, min(waits, default=None), parked)
