"""A worker without Scrapy that crawls keys which do not exist, and reports as a real one does.

Arguments: how many keys, how many a second, and any of: ``say`` (a line a key), ``tell`` (how many
keys are open), ``die=N`` (SIGKILL after the Nth), ``stall=N`` (no more after the Nth), ``all``
(spread keys and speeds over the shards, with a trouble here and there).
"""

from __future__ import annotations

import os
import signal
import sys
import time

from scrapy_hexshard.pipes import LauncherPipes

keys, speed = int(sys.argv[1]), float(sys.argv[2])
options = dict(word.partition("=")[::2] for word in sys.argv[3:])
shard = int(os.environ["CRAWL_SHARD"])
if "all" in options:
    keys += shard * keys // 20
    speed *= 1 + shard % 4
    if shard % 7 == 3:
        options["die"] = str(keys // 3)
    if shard % 11 == 6:
        options["stall"] = str(keys // 2)

pipes = LauncherPipes.take()
stopped: list[int] = []
signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
pipes.watch(lambda: os.kill(os.getpid(), signal.SIGTERM))
pipes.report("opened", pid=os.getpid(), spider="s", shard=shard, shards=1)


def totals(number: int) -> dict[str, int]:
    dead = number // 50
    told = {"keys": keys, "open": keys - number} if "tell" in options else {}
    counts = {"done": number - dead, "failed": number // 20, "dead": dead, "items": number}
    return {**counts, "running": min(16, keys - number), "pages": 3 * number, **told}


number = 0
told_at = time.monotonic()
while number < keys and not stopped:
    time.sleep(1 / speed)
    if number == int(options.get("stall", -1)):
        continue
    number += 1
    if "say" in options:
        os.write(1, b"2026-11-29 23:00:00 [scrapy.core.engine] INFO: key %d is done\n" % number)
    if number == int(options.get("die", -1)):
        os.kill(os.getpid(), signal.SIGKILL)
    if time.monotonic() - told_at >= min(1, 10 / speed):
        told_at = time.monotonic()
        pipes.report("progress", **totals(number))
pipes.report("closed", reason="shutdown" if stopped else "finished", **totals(number))
