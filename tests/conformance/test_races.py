"""Many real processes on one store, some of them killed: nothing lost, nothing twice."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

RACER = Path(__file__).with_name("racer.py")
MANY = 16


def urls(first, last):
    return [f"https://shop.example/p/{n}" for n in range(first, last)]


@contextmanager
def racers(backend, deeds):
    """One process for each of the *deeds*, all waiting for the start."""
    processes = [
        subprocess.Popen(
            [sys.executable, RACER, deed[0], backend.url, *map(str, deed[1:])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for deed in deeds
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def start(processes):
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()


def said(process):
    return [json.loads(line) for line in process.stdout if line.endswith("\n")]


def run(backend, *deeds):
    """What each process said, once all have ended well."""
    with racers(backend, deeds) as processes:
        start(processes)
        reports = [said(process) for process in processes]
        assert [process.wait(120) for process in processes] == [0] * len(deeds)
    return reports


def everything(reports, name):
    return [value for report in reports for line in report for value in line[name]]


def test_many_processes_may_create_and_load_one_store_at_once(backend):
    reports = run(backend, *[("load", n * 100, n * 100 + 200) for n in range(MANY)])
    assert sum(line["added"] for report in reports for line in report) == MANY * 100 + 100
    with backend.open() as store:
        assert store.counts()["pending"] == MANY * 100 + 100
        assert sorted(store.claim(10_000)) == sorted(urls(0, MANY * 100 + 100))


def test_each_key_is_claimed_by_exactly_one_of_many_processes(backend):
    keys = urls(0, 4000)
    with backend.open() as store:
        store.enqueue(keys)
    reports = run(backend, *[("drain",)] * MANY)
    assert everything(reports, "stale") == []
    assert sorted(everything(reports, "done")) == sorted(keys)
    tokens = everything(reports, "tokens")
    assert len(set(tokens)) == len(tokens) == len(keys)
    with backend.open() as store:
        assert store.counts()["done"] == len(keys)
        assert store.outcomes() == {"done": len(keys)}
        assert sorted(store.items()) == sorted(keys)


def test_counters_stay_true_whatever_many_processes_do(backend):
    with backend.open() as store:
        store.enqueue(urls(0, 600))
    reports = run(backend, *[("mix",)] * MANY)
    assert everything(reports, "stale") == []
    with backend.open() as store:
        counts = store.counts()
        items = Counter(store.items())
        assert (counts["pending"], counts["running"], counts["failed"]) == (0, 0, 0)
        assert counts["done"] == len(items) == items.total()
        assert counts["done"] + counts["dead"] >= 600
        assert store.outcomes() == {
            name: n for name, n in (("done", counts["done"]), ("http 500", counts["dead"])) if n
        }


def test_late_workers_change_nothing_and_every_key_ends_once(backend):
    keys = urls(0, 300)
    with backend.open() as store:
        store.enqueue(keys)
    reports = run(backend, *[("lag",)] * MANY)
    assert sorted(everything(reports, "done")) == sorted(keys)
    assert everything(reports, "stale"), "no lease was lost, so that nothing was tried"
    with backend.open() as store:
        assert sorted(store.items()) == sorted(keys)
        assert store.counts()["done"] == len(keys)


def test_what_was_answered_survives_kills(backend):
    keys = urls(0, 6000)
    with backend.open() as store:
        store.enqueue(keys)
    chance = random.Random(7)
    answered = []
    for _ in range(8):
        with racers(backend, [("drain",)] * 4) as processes:
            start(processes)
            first = processes[0].stdout.readline()
            time.sleep(chance.uniform(0, 0.05))
            for process in processes:
                process.send_signal(signal.SIGKILL)
            reports = [said(process) for process in processes]
            answered += json.loads(first)["done"] if first.endswith("\n") else []
            answered += everything(reports, "done")
    assert len(set(answered)) == len(answered) > 0
    assert len(answered) < len(keys), "all was done before a kill could hit"
    with backend.open() as store:
        items = list(store.items())
        assert set(answered) <= set(items)
        assert len(items) == len(set(items)) == store.counts()["done"]
    rest = everything(run(backend, ("drain",)), "done")
    assert sorted([*items, *rest]) == sorted(keys)
    with backend.open() as store:
        assert store.counts() == {
            "pending": 0,
            "running": 0,
            "done": len(keys),
            "failed": 0,
            "dead": 0,
        }
        assert sorted(store.items()) == sorted(keys)
