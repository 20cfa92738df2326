"""Works on a store, and writes down in a file beside it what the store has promised to keep.

Arguments: the folder, the mode of ``synchronous``, how many keys, and a seed.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path

from scrapy_hexshard import RetryPolicy, ShardSpec, SQLiteWorkStore, Work
from scrapy_hexshard.store.contract import Settlement
from scrapy_hexshard.store.sqlite import connection

# A checkpoint every few settlements, not every few thousand.
connection._PRAGMAS = tuple(
    "wal_autocheckpoint = 100" if each.startswith("wal_autocheckpoint") else each
    for each in connection._PRAGMAS
)

folder, synchronous, keys, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
chance = random.Random(seed)
promises = os.open(folder / "promises", os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def promise(**facts: object) -> None:
    os.write(promises, json.dumps(facts).encode() + b"\n")


url = f"sqlite:///{folder / 'crawl.sqlite3'}?synchronous={synchronous}"
with SQLiteWorkStore(url, ShardSpec(0, 1), policy=RetryPolicy(max_attempts=2, delay=0)) as store:
    for start in range(0, keys, 50):
        names = [f"key {number}" for number in range(start, start + 50)]
        store.enqueue(Work(name, json.dumps({"n": name})) for name in names)
        promise(known=names)
        while claims := store.claim(chance.randint(1, 20), 600):
            ends = []
            for claim in claims:
                match chance.randrange(6):
                    case 0:
                        ends.append(Settlement.fail(claim, "http 500", retry_in=0))
                    case 1:
                        ends.append(Settlement.fail(claim, "http 404", permanent=True))
                    case 2:
                        found = [f"found by {claim}"] if not claim.startswith("found") else []
                        ends.append(Settlement.complete(claim, discovered=found))
                    case _:
                        items = [json.dumps({"of": claim, "n": n}) for n in range(2)]
                        ends.append(Settlement.complete(claim, items=items))
            store.settle(ends)
            promise(
                done={end.claim: len(end.items) for end in ends if end.kind == "complete"},
                dead=[end.claim for end in ends if end.permanent],
                known=[key for end in ends for key in end.discovered],
            )
