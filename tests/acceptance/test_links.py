"""A spider that finds its pages by itself, by real workers."""

from __future__ import annotations

import json
import re
from collections import Counter

from shop import catalogue
from support.sharded import Crawl

CATALOGUE = ("scrapy", "crawl", "catalogue", "-s", "HEXSHARD_FOLLOW=key")
ROBOTS = "/robots.txt"


def answers(crawl: Crawl) -> Counter[str]:
    """How often each page was answered with itself, rather than with a refusal or a redirect."""
    lines = map(json.loads, crawl.access_log.read_text().splitlines())
    return Counter(line["path"] for line in lines if line["status"] == 200)


def test_four_workers_visit_each_page_once_between_them(sharded: Crawl) -> None:
    sharded.start(command=CATALOGUE)
    assert sharded.wait() == 0, sharded.text
    answered = answers(sharded)
    assert answered.pop(ROBOTS) == 4
    assert set(answered.values()) == {1}
    assert sharded.items() == [each.item for each in catalogue(300, 1) if each.item]


def test_shards_that_nobody_starts_are_named_and_their_start_finishes_the_crawl(
    sharded: Crawl,
) -> None:
    two_of_three = (*CATALOGUE, "-a", "shard={shard}", "-a", "shards=3")
    patience = ("-s", "HEXSHARD_LEASE_SECONDS=3")
    sharded.shards = 2
    sharded.start(command=(*two_of_three, *patience))
    assert sharded.wait() == 1, sharded.text
    assert "shard 0 failed: its shard is not finished: it closed with shards_missing (" in (
        sharded.text
    )
    assert re.search(r"No worker is at work on shard 2 \(keys left: \d+\)\)\.", sharded.text)
    sharded.shards = 3
    sharded.start(command=CATALOGUE)
    assert sharded.wait() == 0, sharded.text
    assert sharded.items() == [each.item for each in catalogue(300, 1) if each.item]
    answered = answers(sharded)
    del answered[ROBOTS]
    assert set(answered.values()) == {1}
