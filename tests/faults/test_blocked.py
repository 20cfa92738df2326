"""Workers that live but do not get on: their reactor, or their store's thread, stands still."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.sharded import Crawl, until
from support.single import Worker, worker

pytestmark = pytest.mark.parametrize("shop_options", [("--delay=0.1",)])
LEASE = 2
SHORT_LEASE = ("-s", f"HEXSHARD_LEASE_SECONDS={LEASE}")
BLOCKED = Path(__file__).parents[1] / "support" / "blocked.py"


@contextmanager
def blocked_worker(
    crawl: Crawl, thread: str, *settings: str
) -> Iterator[tuple[Worker, Callable[[], None]]]:
    """A worker of which *thread* stands still, with keys in its hands; and what ends that."""
    go_on = crawl.folder / "go-on"
    command = (str(BLOCKED), thread, str(go_on))
    with worker(crawl, "first", *SHORT_LEASE, *settings, command=command) as first:
        crawl.wait_until_done_by_itself(10)
        first.process.send_signal(signal.SIGUSR1)
        until(go_on.with_suffix(".blocked").exists, "it to stand still")
        assert first.held
        yield first, go_on.touch


def check(crawl: Crawl, first: Worker, second: Worker) -> None:
    """All is there once, whoever did it, and no page was fetched again without a lost lease."""
    assert first.wait() == second.wait() == 0, first.text[-2000:] + second.text[-2000:]
    assert crawl.complaints() == []
    assert first.stat("done") + second.stat("done") == crawl.count("done")
    late, again = first.late, crawl.fetched_again()
    print(f"late {late:g}, fetched again {len(again)}, second: {second.stat('done'):g} done")
    assert second.late == 0
    assert len(again) <= late


def test_a_reactor_that_is_blocked_past_the_lease_keeps_its_leases(sharded: Crawl) -> None:
    with blocked_worker(sharded, "reactor") as (first, go_on):
        with worker(sharded, "second", *SHORT_LEASE) as second:
            sharded.wait_until_done_by_itself(60)  # it does work beside
            for _ in range(6 * LEASE):
                threading.Event().wait(0.5)
                assert first.held
            go_on()
            check(sharded, first, second)
        assert first.late == 0
    assert sharded.fetched_again() == []


@pytest.mark.parametrize(
    ("thread", "settings"),
    [("reactor", ("-s", "HEXSHARD_UNIT_TIMEOUT=2")), ("store", ())],
    ids=["reactor, past the unit timeout", "store thread"],
)
def test_blocked_for_longer_it_loses_them_and_what_comes_late_changes_nothing(
    sharded: Crawl, thread: str, settings: tuple[str, ...]
) -> None:
    with (
        blocked_worker(sharded, thread, *settings) as (first, go_on),
        worker(sharded, "second", *SHORT_LEASE) as second,
    ):
        held = first.held
        until(lambda: first.held == 0, "the second worker to take over")
        go_on()
        check(sharded, first, second)
        print(f"it held {held}")
        assert first.late > 0
        assert first.stat("done") > 0


@pytest.mark.parametrize("thread", ["reactor", "store"])
def test_nobody_beside_it_blocked_costs_nothing_but_time(sharded: Crawl, thread: str) -> None:
    with blocked_worker(sharded, thread) as (first, go_on):
        threading.Event().wait(3 * LEASE)
        go_on()
        assert first.wait() == 0
        assert first.late == 0
    assert sharded.fetched_again() == []
    assert sharded.complaints() == []
