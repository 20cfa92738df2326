"""A machine's clock that is set in the middle of a crawl."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
from support.crawling import Crawl, crawl_test, run, together
from support.spiders import Plain, nap

from scrapy_hexshard import SQLiteWorkStore

HOUR = 3600.0


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
@crawl_test
async def test_a_clock_that_jumps_loses_no_key_and_ends_none_twice(
    store_path, origin, monkeypatch, jump
):
    """Two workers of one shard, for one alone never takes its own leases away."""
    machine = time.time
    pages: list[str] = []
    monkeypatch.setattr(time, "time", lambda: machine() + (jump if len(pages) >= 12 else 0.0))

    class Slow(Plain):
        async def parse(self, response: Any) -> Any:
            pages.append(response.url)
            await nap(0.3)
            yield {"url": response.url}

    keys = [f"{origin}/ok?{n}" for n in range(40)]
    with SQLiteWorkStore(str(store_path), 1) as store:
        store.enqueue(keys)
    settings = {
        "HEXSHARD_STORE": str(store_path),
        "HEXSHARD_ITEMS": True,
        "HEXSHARD_MAX_UNITS": 6,
        "HEXSHARD_MAX_DEATHS": 9,
    }
    crawlers = await together(run(Slow, settings), run(Slow, settings))
    crawled = Crawl(crawlers[0], store_path)
    assert crawled.counts == {"done": 40}
    assert Counter(item["url"] for item in crawled.items) == Counter(keys)
    refetched = sum((Counter(pages) - Counter(keys)).values())
    late = [
        sum(each.stats.get_value(f"hexshard/{name}", 0) for each in crawlers)
        for name in ("stale", "lost")
    ]
    print(f"{refetched} pages twice; stale and lost: {late}")
    assert refetched <= sum(late)
    if jump > 0:
        assert refetched  # else nothing was put to the test
