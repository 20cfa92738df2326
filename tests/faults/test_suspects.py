"""A page that kills its worker is found out; pages that others killed are not condemned for it."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from shop import open_shop
from support.identities import FROZEN, dead_identity
from support.processes import SETTINGS, Project

from scrapy_hexshard import ShardSpec, SQLiteWorkStore

ALONE = ShardSpec(0, 1)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with open_shop("--products=16", "--delay=0.05") as address:
        made = Project(tmp_path, address)
        yield made
        made.stop_all()


POISON = """
import os

class Poison(scrapy.Spider):
    name = "poison"
    custom_settings = {"CONCURRENT_REQUESTS_PER_DOMAIN": 16, "RETRY_TIMES": 2}

    async def start(self):
        # The first to be asked for, so that its answer comes while all others are in flight.
        yield Request(ORIGIN + "/p/7", callback=self.kill, priority=1)
        for n in range(1, 17):
            if n != 7:
                yield Request(f"{ORIGIN}/p/{n}", cb_kwargs={"n": n})

    def kill(self, response):
        os._exit(3)

    def parse(self, response, n):
        yield {"n": n}
"""


WAITING = """
HEXSHARD_ITEMS = False
HEXSHARD_COMPLETE_AFTER = "feed"
FEEDS = {"%(shard)s-%(batch_time)s.jsonl": {"format": "jsonlines", "batch_item_count": 4}}
"""
LAUNCHER = ("-m", "scrapy_hexshard", "run", "--shards=1")
CRAWL = (sys.executable, "-m", "scrapy", "crawl", "poison")


def test_a_page_that_kills_its_worker_is_alone_given_up(project: Project) -> None:
    project.write(POISON)
    ended = project.wait(project.python(*LAUNCHER, "--max-restarts=9", "--", *CRAWL))
    told = ended.out + ended.err
    assert ended.code == 0, told[-4000:]
    assert project.counts == {"done": 15, "dead": 1}
    with SQLiteWorkStore(project.store, readonly=True) as store:
        assert store.outcomes() == {"done": 15, "worker died": 1}
    innocent = [n for n in range(1, 17) if n != 7]
    assert sorted(item["n"] for item in project.items) == innocent
    # Twice with all the others in flight, which were suspects then; and three times alone.
    assert project.reasons == [None] * 5 + ["finished"]
    assert all(f"they had {project.origin}/p/{n} in flight" in told for n in innocent)
    assert f"Gave up {project.origin}/p/7: worker died" in told


def test_it_is_so_too_where_keys_wait_for_their_feed(project: Project) -> None:
    project.write(POISON, SETTINGS + WAITING)
    ended = project.wait(project.python(*LAUNCHER, "--max-restarts=9", "--", *CRAWL))
    told = ended.out + ended.err
    assert ended.code == 0, told[-4000:]
    with SQLiteWorkStore(project.store, readonly=True) as store:
        assert store.outcomes() == {"done": 15, "worker died": 1}
    lines = [n for file in project.folder.glob("*.jsonl") for n in file.read_text().splitlines()]
    assert {json.loads(line)["n"] for line in lines} == {n for n in range(1, 17) if n != 7}
    assert project.reasons == [None] * 5 + ["finished"]


# What a worker of 16 requests at a time goes through when it is killed about once a second, and a
# page takes a tenth of one.
KEYS = 300
AT_ONCE = 16
HELD = 2 * AT_ONCE
KILL = 1 / 10
LEASE = 60.0


@dataclass
class Storm:
    """Workers of one shard, each killed sooner or later but for the last one."""

    path: Path
    dice: random.Random
    now: float = 1_800_000_000.0
    kills: int = 0
    alone: int = 0  # claims of suspects

    def rage(self) -> int:
        """How many innocents were condemned in it."""
        url = f"sqlite:///{self.path}?synchronous=NORMAL"
        with SQLiteWorkStore(url, ALONE) as store:
            store.enqueue(f"https://shop.example/p/{n}" for n in range(KEYS))
        survived = False
        while not survived:
            identity = self.dice.choice([DEAD, FROZEN])
            with SQLiteWorkStore(url, ALONE, identity=identity, clock=lambda: self.now) as worker:
                survived = self.work(worker)
                counts = worker.counts()
            self.now += LEASE
        assert counts["done"] + counts["dead"] == KEYS
        return counts["dead"]

    def work(self, worker: SQLiteWorkStore) -> bool:
        """Crawl until nothing is left; False if a kill comes first."""
        held = []
        while True:
            claims = worker.claim(HELD - len(held), LEASE)
            assert not any(claim.lone for claim in claims) or (len(claims), held) == (1, [])
            self.alone += sum(claim.lone for claim in claims)
            held += claims
            if not held:
                return not worker.open_work()
            if self.dice.random() < KILL:
                self.kills += 1
                return False
            worker.complete(*held[:AT_ONCE])
            del held[:AT_ONCE]


DEAD = dead_identity()


def test_of_sixty_storms_of_random_kills_at_most_one_condemns_an_innocent(tmp_path: Path) -> None:
    storms = [Storm(tmp_path / f"{n}.sqlite3", random.Random(n)) for n in range(60)]
    condemned = [storm.rage() for storm in storms]
    assert sum(map(bool, condemned)) <= 1
    assert sum(storm.kills for storm in storms) > 150, "hardly a storm"
    assert sum(storm.alone for storm in storms) > 400, "hardly a suspect"
