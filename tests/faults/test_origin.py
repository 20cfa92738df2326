"""Origins and networks at their worst, before a real crawl."""

from __future__ import annotations

import threading
import time
import zlib
from collections import Counter

import pytest
from shop import catalogue
from support.relay import relay
from support.sharded import CRAWL, Crawl

PRODUCTS = 300
IDS = range(1, 161)
NAMED = (*CRAWL, "-a", f"ids={','.join(map(str, IDS))}")
SOON = ("-s", "HEXSHARD_RETRY_DELAY=0.5")


def percent(path: str, salt: str) -> int:
    """From 0 to 99, the same for the same words."""
    return zlib.crc32(f"{salt} {path}".encode()) % 100


def loops(number: int) -> bool:
    return number % 40 == 7


def trouble(path: str, times: int) -> str | None:
    """Once in a while a fault, the first time or the first few times a page is asked for."""
    if path.startswith("/p/") and loops(int(path[3:].partition("?")[0])):
        return "endless"
    if times <= 3 and percent(path, "reset") < 5:
        return "reset"
    if times == 1 and percent(path, "short") < 4:
        return "short"
    if times == 1 and percent(path, "slow") < 5:
        return "slow"
    if path.startswith("/p/") and percent(path, "big") < 4:
        return "big"
    return None


def expected(crawl: Crawl, *, loop: bool = False) -> tuple[list[object], Counter[str]]:
    """The items, and the outcomes, of the products that were named."""
    truth = [each for each in catalogue(PRODUCTS, 1) if each.id in IDS]
    items = [each.item for each in truth if each.item and not (loop and loops(each.id))]
    outcomes = Counter("ignored" if loop and loops(each.id) else each.outcome for each in truth)
    return items, outcomes


def test_resets_slow_and_short_bodies_loops_and_huge_pages(sharded: Crawl) -> None:
    sharded.settings = (*SOON, "-s", "HEXSHARD_MAX_ATTEMPTS=4")
    with relay(sharded.shop, trouble) as between:
        sharded.shop = between.address
        sharded.start(command=NAMED)
        assert sharded.wait() == 0, sharded.text[-4000:]
    print(dict(between.done))
    assert set(between.done) == {"reset", "short", "slow", "big", "endless"}
    items, outcomes = expected(sharded, loop=True)
    assert sharded.items() == items
    assert sharded.outcomes() == outcomes
    assert sharded.count("running") == sharded.count("failed") == 0


def test_an_origin_that_is_down_for_a_while(sharded: Crawl, fault_scale) -> None:
    attempts, down = (12, 60) if fault_scale.long else (8, 6)
    few = ("-s", "HEXSHARD_MAX_UNITS=4", "-s", f"HEXSHARD_MAX_ATTEMPTS={attempts}")
    sharded.settings = (*SOON, *few)
    with relay(sharded.shop, lambda path, times: None) as between:
        sharded.shop = between.address
        sharded.start(command=NAMED)
        sharded.wait_until_done(20)
        between.shut()
        threading.Event().wait(down)
        assert not sharded.ended
        between.open()
        assert sharded.wait() == 0, sharded.text[-4000:]
    items, outcomes = expected(sharded)
    assert sharded.items() == items
    assert sharded.outcomes() == outcomes


@pytest.mark.parametrize("shop_options", [("--reviews-fail-first=4",)])
def test_an_api_that_fails_four_times_is_healed_by_a_later_attempt_of_the_same_process(
    sharded: Crawl,
) -> None:
    sharded.settings = SOON
    began = time.monotonic()
    sharded.start(command=NAMED)
    assert sharded.wait() == 0, sharded.text[-4000:]
    print(f"{time.monotonic() - began:.1f} s")
    assert "life 2" not in sharded.text
    items, outcomes = expected(sharded)
    assert sharded.items() == items
    assert sharded.outcomes() == outcomes
