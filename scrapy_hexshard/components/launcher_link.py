"""Keeps a launcher informed, and stops this process when the launcher has gone."""

from __future__ import annotations

import os
import signal
import time
from functools import cache

from scrapy_hexshard.pipes import LauncherPipes
from scrapy_hexshard.sharding import ShardSpec

FORCE_AFTER_SECONDS = 2.5
KILL_AFTER_SECONDS = 10.0
MAX_DETAIL = 400  # characters, of which each may take six bytes in a report
MAX_FAULT = 150


@cache
def launcher_pipes() -> LauncherPipes:
    """This process's ends of the launcher's pipes, taken from the environment once."""
    return LauncherPipes.take()


class LauncherLink:
    """Reports one crawl to the launcher; without a launcher it does nothing."""

    def __init__(self, pipes: LauncherPipes) -> None:
        self._pipes = pipes

    @property
    def dropped(self) -> int:
        """Reports the launcher did not take."""
        return self._pipes.dropped

    def opened(self, spider: str, shard: ShardSpec) -> None:
        """The spider has been opened."""
        self._pipes.watch(_stop_this_process)
        facts = {"spider": spider, "shard": shard.index, "shards": shard.count}
        self._pipes.report("opened", pid=os.getpid(), **facts)

    def progress(self, totals: dict[str, int]) -> None:
        """The totals so far. That they come at all says that the event loop turns."""
        self._pipes.report("progress", **totals)

    def closed(
        self,
        reason: str,
        detail: str | None,
        totals: dict[str, int],
        fault: tuple[str, int] | None = None,
    ) -> None:
        """The crawl has ended for *reason*; *detail* says more of it.

        *fault* is why most attempts failed that should not have, and how many.
        """
        told: dict[str, object] = {} if detail is None else {"detail": detail[:MAX_DETAIL]}
        if fault is not None:
            outcome, times = fault
            told |= {"fault": outcome[:MAX_FAULT], "fault_times": times}
        self._pipes.report("closed", reason=reason, **told, **totals)


def _stop_this_process() -> None:
    """Stop as a launcher would stop it: asked, asked again, ended."""
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(FORCE_AFTER_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(KILL_AFTER_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)
