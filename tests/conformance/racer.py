"""A worker process for the tests of races: ``racer.py DEED URL ...``, started by a line on stdin.

It says what it did as JSON lines, each one after the store has answered.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator

from scrapy_hexshard import RetryPolicy, Settlement, ShardSpec, WorkStore, open_store

ALONE = ShardSpec(0, 1)


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def batches(store: WorkStore, limit: int, lease_seconds: float) -> Iterator[list]:
    """Claims until nothing of the shard is open any more."""
    while work := store.open_work():
        if claims := store.claim(limit, lease_seconds):
            yield claims
        else:
            time.sleep(min(work.next_in, 0.05))


def drain(store: WorkStore) -> None:
    """Complete everything; each key has an item."""
    for claims in batches(store, 20, 600):
        done = store.settle(Settlement.complete(key, items=[json.dumps(key)]) for key in claims)
        say(done=done.applied, stale=done.stale, tokens=[claim.token for claim in claims])


def mix(store: WorkStore) -> None:
    """End claims in every way, with a few keys discovered on the way."""
    chance = random.Random(time.time_ns())
    for claims in batches(store, 20, 600):
        endings = []
        for key in claims:
            dice = chance.random()
            if dice < 0.2:
                endings.append(Settlement.release(key))
            elif dice < 0.4:
                endings.append(Settlement.fail(key, "http 500", retry_in=0.01))
            else:
                found = [f"{key}/more"] if dice > 0.9 and len(key) < 60 else []
                endings.append(Settlement.complete(key, "done", [json.dumps(key)], found))
        settled = store.settle(endings)
        say(settled=len(settled.applied), stale=settled.stale)


def lag(store: WorkStore) -> None:
    """Hold claims for longer than their lease now and then."""
    chance = random.Random(time.time_ns())
    for claims in batches(store, 5, 0.05):
        if chance.random() < 0.3:
            time.sleep(0.08)
        done = store.settle(Settlement.complete(key, items=[json.dumps(key)]) for key in claims)
        say(done=done.applied, stale=done.stale, tokens=[claim.token for claim in claims])


def load(store: WorkStore, first: str, last: str) -> None:
    say(added=store.enqueue(f"https://shop.example/p/{n}" for n in range(int(first), int(last))))


def main() -> None:
    deed, url, *arguments = sys.argv[1:]
    sys.stdin.readline()
    # Suspects, but none that is given up: a late worker is no proof against its key.
    policy = RetryPolicy(max_attempts=4, delay=0.01, max_lone_deaths=10**6)
    with open_store(url, ALONE, policy=policy) as store:
        {"drain": drain, "mix": mix, "lag": lag, "load": load}[deed](store, *arguments)


if __name__ == "__main__":
    main()
