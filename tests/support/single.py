"""A worker of the shop's only shard, without a launcher."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from sqlite3 import connect

from support.sharded import PATIENCE, PROJECT, Crawl

CRAWL = ("scrapy", "crawl", "products", "-a", "shard=0/1")


class Worker:
    """A running one; *command* is what runs ``scrapy``, by default ``python -m``."""

    def __init__(
        self, crawl: Crawl, name: str, settings: tuple[str, ...], command: tuple[str, ...] = ("-m",)
    ) -> None:
        self._store = crawl.store
        self._log = crawl.folder / f"{name}.log"
        store = f"HEXSHARD_STORE={crawl.store}"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command, *CRAWL, "-s", store, *settings],
                cwd=PROJECT,
                env={**os.environ, "SHOP_URL": crawl.shop},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def text(self) -> str:
        return self._log.read_text(errors="replace")

    def stat(self, name: str) -> float:
        """One of its final stats under ``hexshard/``; 0 if it counted none."""
        found = re.search(rf"'hexshard/{name}': ([\d.]+)", self.text)
        return float(found[1]) if found else 0

    @property
    def late(self) -> float:
        """How many of its claims it found lost."""
        return self.stat("lost") + self.stat("stale")

    @property
    def held(self) -> int:
        """How many keys the store says are leased to it."""
        query = (
            "SELECT count(*) FROM busy JOIN workers ON workers.id = busy.worker "
            "WHERE state = 1 AND pid = ?"
        )
        with closing(connect(self._store)) as db:
            return int(db.execute(query, (self.process.pid,)).fetchone()[0])

    def wait(self) -> int:
        return self.process.wait(PATIENCE)


@contextmanager
def worker(
    crawl: Crawl, name: str, *settings: str, command: tuple[str, ...] = ("-m",)
) -> Iterator[Worker]:
    """A worker that is killed at the end of the ``with`` block, should it still run."""
    started = Worker(crawl, name, settings, command)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()


def state_of(pid: int) -> str:
    """The letter that the kernel has for it: R, S, T ..."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
