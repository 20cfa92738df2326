"""Workers that stand still, and workers that are one too many."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from support.sharded import PATIENCE, PROJECT, Crawl, until

SHORT_LEASE = ("-s", "HEXSHARD_LEASE_SECONDS=2")
SLOW_SHOP = pytest.mark.parametrize("shop_options", [("--delay=0.25",)])


class Worker:
    """A worker of the only shard, without a launcher."""

    def __init__(self, crawl: Crawl, name: str) -> None:
        self._log = crawl.folder / f"{name}.log"
        command = [sys.executable, "-m", "scrapy", "crawl", "products", "-a", "shard=0/1"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "-s", f"HEXSHARD_STORE={crawl.store}", *SHORT_LEASE],
                cwd=PROJECT,
                env={**os.environ, "SHOP_URL": crawl.shop},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def text(self) -> str:
        return self._log.read_text(errors="replace")

    def stat(self, name: str) -> int:
        found = re.search(rf"'hexshard/{name}': (\d+)", self.text)
        return int(found[1]) if found else 0

    def wait(self) -> int:
        return self.process.wait(PATIENCE)


@contextmanager
def worker(crawl: Crawl, name: str) -> Iterator[Worker]:
    started = Worker(crawl, name)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()


def held_by(worker: Worker, crawl: Crawl) -> int:
    """How many keys the store says are leased to it."""
    query = (
        "SELECT count(*) FROM busy JOIN workers ON workers.id = busy.worker "
        "WHERE state = 1 AND pid = ?"
    )
    with closing(sqlite3.connect(crawl.store)) as db:
        return int(db.execute(query, (worker.process.pid,)).fetchone()[0])


def put_to_sleep(sleeper: Worker, crawl: Crawl) -> None:
    """Stop a worker while it does not hold the gate, for which all others would wait."""
    stat = Path(f"/proc/{sleeper.process.pid}/stat")
    gate = Path(f"{crawl.store}.lock").stat().st_ino
    while True:
        sleeper.process.send_signal(signal.SIGSTOP)
        until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "the worker to stop")
        if f":{gate} " not in Path("/proc/locks").read_text():
            return
        sleeper.process.send_signal(signal.SIGCONT)


@SLOW_SHOP
def test_a_worker_that_sleeps_past_its_leases_changes_nothing_when_it_wakes(sharded: Crawl) -> None:
    with worker(sharded, "first") as first:
        sharded.wait_until_done_by_itself(10)
        put_to_sleep(first, sharded)
        assert held_by(first, sharded)
        with worker(sharded, "second") as second:
            until(lambda: held_by(first, sharded) == 0, "the second worker to take over")
            first.process.send_signal(signal.SIGCONT)
            assert first.wait() == second.wait() == 0
        late = {name: first.stat(name) for name in ("lost", "stale", "late/responses")}
        print(late)
        assert late["lost"] + late["stale"] > 0
    assert sharded.complaints() == []


@SLOW_SHOP
def test_two_workers_of_one_shard_share_its_keys_and_say_so(sharded: Crawl) -> None:
    with worker(sharded, "first") as first:
        sharded.wait_until_done_by_itself(10)
        with worker(sharded, "second") as second:
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
    with worker(sharded, "first") as first:
        sharded.wait_until_done_by_itself(10)
        first.process.kill()
        first.wait()
    with worker(sharded, "second") as second:
        assert second.wait() == 0
    assert "Was it started twice?" not in second.text
    assert sharded.complaints() == []
