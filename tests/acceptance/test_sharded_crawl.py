"""Real workers under the real launcher: stopped, killed, orphaned, and failing."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from support.sharded import Crawl, is_running, until

SLOW_SHOP = pytest.mark.parametrize("shop_options", [("--delay=0.1",)])


def all_gone(pids: list[int]) -> bool:
    return not any(map(is_running, pids))


def test_a_sharded_crawl_is_exact_and_ends_with_zero(sharded: Crawl) -> None:
    sharded.start()
    assert sharded.wait() == 0, sharded.text
    assert sharded.complaints() == []


def test_the_same_command_again_crawls_nothing_again(sharded: Crawl) -> None:
    sharded.start()
    assert sharded.wait() == 0
    hits = sharded.requests()
    sharded.start()
    assert sharded.wait() == 0
    # The spider's own list, and robots.txt once per worker.
    assert sharded.requests() - hits <= 2 * sharded.shards
    assert sharded.complaints() == []


@SLOW_SHOP
def test_one_ctrl_c_stops_cleanly_and_the_next_run_finishes(sharded: Crawl) -> None:
    sharded.start(on_a_terminal=True)
    sharded.wait_until_done(20)
    pids = list(sharded.workers().values())
    sharded.press_ctrl_c()
    assert sharded.wait() == 130, sharded.text
    assert all_gone(pids)
    assert sharded.count("running") == 0
    assert "SIGKILL" not in sharded.text
    assert "Keys are left: the same command goes on" in sharded.text
    sharded.start()
    assert sharded.wait() == 0, sharded.text
    assert sharded.complaints() == []


@SLOW_SHOP
def test_two_ctrl_c_force_it_and_still_leave_no_lease(sharded: Crawl) -> None:
    sharded.start(on_a_terminal=True)
    sharded.wait_until_done(20)
    pids = list(sharded.workers().values())
    sharded.press_ctrl_c()
    time.sleep(0.1)  # a person's second press, not one signal merged with the first
    sharded.press_ctrl_c()
    assert sharded.wait() == 130, sharded.text
    assert all_gone(pids)
    assert sharded.count("running") == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@SLOW_SHOP
def test_a_signal_stops_cleanly(sharded: Crawl, number: signal.Signals, code: int) -> None:
    sharded.start()
    sharded.wait_until_done(20)
    pids = list(sharded.workers().values())
    assert sharded.process is not None
    sharded.process.send_signal(number)
    assert sharded.wait() == code, sharded.text
    assert all_gone(pids)
    assert sharded.count("running") == 0


@SLOW_SHOP
def test_a_closed_terminal_stops_cleanly(sharded: Crawl) -> None:
    sharded.start(on_a_terminal=True)
    sharded.wait_until_done(20)
    pids = list(sharded.workers().values())
    sharded.close_terminal()
    assert sharded.wait() == 129
    until(lambda: all_gone(pids), "the workers to end")
    assert sharded.count("running") == 0


@SLOW_SHOP
def test_workers_outlive_a_killed_launcher_by_five_seconds_at_most(sharded: Crawl) -> None:
    sharded.start()
    sharded.wait_until_done(20)
    pids = list(sharded.workers().values())
    assert len(pids) == 4
    assert sharded.process is not None
    sharded.process.kill()
    killed = time.monotonic()
    until(lambda: all_gone(pids), "the workers to end")
    assert time.monotonic() - killed < 5
    assert sharded.count("running") == 0
    sharded.start()
    assert sharded.wait() == 0, sharded.text
    assert sharded.complaints() == []


@SLOW_SHOP
def test_a_killed_worker_fails_the_run_and_the_same_command_resumes(sharded: Crawl) -> None:
    sharded.start()
    sharded.wait_until_done(20)
    os.kill(sharded.workers()[2], signal.SIGKILL)
    assert sharded.wait() == 1, sharded.text
    assert "SIGKILL" in sharded.text
    sharded.start()
    assert sharded.wait() == 0, sharded.text
    assert sharded.complaints() == []


@pytest.mark.slow
@pytest.mark.parametrize("shop_options", [("--products=1500", "--delay=0.03")])
def test_kills_every_second_of_the_whole_crawl_lose_and_condemn_nothing(sharded: Crawl) -> None:
    sharded.products = 1500
    sharded.start("--max-restarts=60")
    sharded.wait_until_done(1)
    dice = random.Random(7)
    kills = 0
    latest = time.monotonic() + 300
    while not sharded.ended and time.monotonic() < latest:
        # A shard, and not one of those at work: the last one would never live for a second.
        if pid := sharded.workers().get(dice.randrange(sharded.shards)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                kills += 1
        time.sleep(1)
    print(f"{kills} kills")
    assert sharded.wait() == 0, sharded.text[-4000:]
    assert kills >= 10
    assert sharded.complaints() == []


def spider(folder: Path, code: str) -> tuple[str, ...]:
    path = folder / "spider.py"
    path.write_text(f"import scrapy\n\n{code}")
    return ("scrapy", "runspider", str(path))


def test_every_callback_raising_ends_with_one(sharded: Crawl) -> None:
    command = spider(
        sharded.folder,
        f"""
class Raises(scrapy.Spider):
    name = "raises"
    start_urls = ["{sharded.shop}/p/%d" % n for n in range(1, 9)]

    def parse(self, response):
        raise ValueError("the page has changed")
""",
    )
    sharded.settings = ("-s", "HEXSHARD_MAX_ATTEMPTS=1")
    sharded.start(command=command)
    assert sharded.wait() == 1
    assert "completed no key, and " in sharded.text
    assert "; most often: spider: ValueError (" in sharded.text
    assert sharded.count("dead") == 8


def test_an_origin_that_is_down_ends_with_one(sharded: Crawl) -> None:
    command = spider(
        sharded.folder,
        """
class Down(scrapy.Spider):
    name = "down"
    start_urls = ["http://127.0.0.1:1/%d" % n for n in range(8)]
""",
    )
    sharded.settings = ("-s", "HEXSHARD_MAX_ATTEMPTS=1", "-s", "RETRY_TIMES=0")
    sharded.start(command=command)
    assert sharded.wait() == 1
    assert sharded.count("dead") == 8


def test_workers_that_all_crawl_one_shard_do_not_pass_for_finished(sharded: Crawl) -> None:
    sharded.start(command=("scrapy", "crawl", "products", "-a", "shard=1", "-a", "shards=4"))
    assert sharded.wait() == 1
    assert "it crawled shard 1 in the place of its own" in sharded.text
    assert sharded.text.count("-a shard={shard} -a shards={shards}") >= 3


def test_an_unknown_spider_ends_with_one(sharded: Crawl) -> None:
    sharded.start(command=("scrapy", "crawl", "no_such_spider"))
    assert sharded.wait() == 1
    assert "no_such_spider" in sharded.text


def test_a_refused_setting_ends_with_one_and_a_sentence(sharded: Crawl) -> None:
    sharded.settings = ("-s", "HEXSHARD_LEASE_SECONDS=soon")
    sharded.start()
    assert sharded.wait() == 1
    assert "HEXSHARD_LEASE_SECONDS is a number of seconds" in sharded.text
    assert "Traceback" not in sharded.text


def test_a_store_with_another_number_of_shards_is_refused(sharded: Crawl) -> None:
    sharded.start()
    assert sharded.wait() == 0
    sharded.shards = 3
    sharded.start()
    assert sharded.wait() == 1
    assert "4" in sharded.text
    assert "Traceback" not in sharded.text
    assert sharded.complaints() == []
