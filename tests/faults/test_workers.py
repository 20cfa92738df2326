"""Workers that stand still, and workers that are one too many."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.sharded import Crawl, until
from support.single import Worker, state_of, worker

SHORT_LEASE = ("-s", "HEXSHARD_LEASE_SECONDS=2")
SLOW_SHOP = pytest.mark.parametrize("shop_options", [("--delay=0.25",)])


def put_to_sleep(sleeper: Worker, crawl: Crawl) -> None:
    """Stop a worker while it does not hold the gate, for which all others would wait."""
    gate = Path(f"{crawl.store}.lock").stat().st_ino
    while True:
        sleeper.process.send_signal(signal.SIGSTOP)
        until(lambda: state_of(sleeper.process.pid) == "T", "the worker to stop")
        if f":{gate} " not in Path("/proc/locks").read_text():
            return
        sleeper.process.send_signal(signal.SIGCONT)


@SLOW_SHOP
def test_a_worker_that_sleeps_past_its_leases_changes_nothing_when_it_wakes(sharded: Crawl) -> None:
    with worker(sharded, "first", *SHORT_LEASE) as first:
        sharded.wait_until_done_by_itself(10)
        put_to_sleep(first, sharded)
        assert first.held
        with worker(sharded, "second", *SHORT_LEASE) as second:
            until(lambda: first.held == 0, "the second worker to take over")
            first.process.send_signal(signal.SIGCONT)
            assert first.wait() == second.wait() == 0
        late = {name: first.stat(name) for name in ("lost", "stale", "late/responses")}
        print(late)
        assert late["lost"] + late["stale"] > 0
    assert sharded.complaints() == []


@SLOW_SHOP
def test_two_workers_of_one_shard_share_its_keys_and_say_so(sharded: Crawl) -> None:
    with worker(sharded, "first", *SHORT_LEASE) as first:
        sharded.wait_until_done_by_itself(10)
        with worker(sharded, "second", *SHORT_LEASE) as second:
            assert first.wait() == second.wait() == 0
        assert first.stat("done") > 0
        assert second.stat("done") > 0
        assert first.stat("done") + second.stat("done") == sharded.count("done")
    assert "Was it started twice?" in second.text
    assert sharded.complaints() == []


@SLOW_SHOP
def test_two_launchers_on_one_store_crawl_no_key_twice(sharded: Crawl) -> None:
    sharded.start()
    sharded.wait_until_done(10)
    second = Crawl(sharded.folder, sharded.shop, sharded.products)
    second.start()
    assert second.wait() == sharded.wait() == 0, sharded.text + second.text
    assert second.text.count("Was it started twice?") >= 1
    assert sharded.complaints() == []
    second.close()


@SLOW_SHOP
def test_a_worker_that_is_started_anew_does_not_take_its_dead_predecessor_for_another(
    sharded: Crawl,
) -> None:
    with worker(sharded, "first", *SHORT_LEASE) as first:
        sharded.wait_until_done_by_itself(10)
        first.process.kill()
        first.wait()
    with worker(sharded, "second", *SHORT_LEASE) as second:
        assert second.wait() == 0
    assert "Was it started twice?" not in second.text
    assert sharded.complaints() == []
