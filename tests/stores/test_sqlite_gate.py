"""The gate that lets one writer through at a time, and what forks and failures do to it."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress

import pytest

from scrapy_hexshard import ShardSpec, SQLiteWorkStore, StoreError, StoreUnavailableError
from scrapy_hexshard.store.sqlite.gate import Gate

ALONE = ShardSpec(0, 1)


@pytest.fixture
def lock(tmp_path):
    return tmp_path / "crawl.sqlite3.lock"


@pytest.fixture
def hold(lock):
    """Start processes that hold the gate."""
    holders = []

    def start():
        holders.append(Holder(lock))
        return holders[-1]

    yield start
    for holder in holders:
        holder.end()


@pytest.fixture
def gate(lock):
    gate = Gate(lock, patience=60)
    yield gate
    gate.close()


def is_free(lock):
    descriptor = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


class Holder:
    """Another process that holds the gate until told to let go."""

    CODE = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'r+')\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "sys.stdin.readline()\n"
    )

    def __init__(self, lock):
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.CODE, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdout.readline() == b"held\n"

    def let_go(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        self.process.wait(60)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        with suppress(BrokenPipeError):
            self.process.stdin.close()


def test_it_is_held_between_acquire_and_release(gate, lock):
    gate.acquire()
    assert not is_free(lock)
    gate.release()
    assert is_free(lock)


def test_it_waits_for_its_turn_and_says_how_long(gate, lock, hold):
    holder = hold()
    assert gate.waited == 0
    threading.Timer(0.2, holder.let_go).start()
    gate.acquire()
    assert gate.waited >= 0.1
    assert not is_free(lock)
    gate.release()


def test_it_gives_up_and_names_the_holder(gate, lock, hold):
    holder = hold()
    gate.patience = 0.1
    with pytest.raises(StoreUnavailableError, match=f"0.1 seconds .process {holder.process.pid}"):
        gate.acquire()


def test_what_it_gave_up_waiting_for_is_not_kept(gate, lock, hold):
    holder = hold()
    gate.patience = 0.05
    for _ in range(3):
        with pytest.raises(StoreUnavailableError):
            gate.acquire()
    holder.let_go()
    gate.patience = 60
    gate.acquire()
    gate.release()
    assert is_free(lock)


def test_a_wait_that_was_given_up_takes_no_lock_from_the_next_call(gate, lock, hold, monkeypatch):
    taken, preempted = threading.Event(), threading.Event()

    class Slowly:
        """flock(), after which the waiting thread is not scheduled for a while."""

        LOCK_EX, LOCK_NB, LOCK_UN = fcntl.LOCK_EX, fcntl.LOCK_NB, fcntl.LOCK_UN

        @staticmethod
        def flock(descriptor, operation):
            fcntl.flock(descriptor, operation)
            if operation == fcntl.LOCK_EX:
                taken.set()
                preempted.wait(0.3)

    monkeypatch.setattr("scrapy_hexshard.store.sqlite.gate.fcntl", Slowly)
    holder = hold()
    gate.patience = 0.05
    with pytest.raises(StoreUnavailableError):
        gate.acquire()
    holder.let_go()
    assert taken.wait(60)
    gate.patience = 60
    gate.acquire()
    preempted.wait(0.6)
    assert not is_free(lock)


def test_it_may_be_closed_while_it_still_waits(lock, hold):
    lock.touch()
    holder = hold()
    other = Gate(lock, patience=0.05)
    with pytest.raises(StoreUnavailableError):
        other.acquire()
    other.close()
    holder.let_go()
    deadline = time.monotonic() + 60
    while not is_free(lock):
        assert time.monotonic() < deadline


def test_a_deleted_lock_file_does_not_make_two_gates(gate, lock):
    other = Gate(lock, patience=0.1)
    lock.unlink()
    gate.acquire()
    assert not is_free(lock)
    with pytest.raises(StoreUnavailableError):
        other.acquire()
    gate.release()
    other.acquire()
    other.release()
    other.close()


def test_a_deleted_folder_is_told_plainly_and_the_store_still_closes(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with SQLiteWorkStore(folder / "crawl.sqlite3", ALONE) as store:
        shutil.rmtree(folder)
        with pytest.raises(StoreUnavailableError, match=r"Cannot open .*\.lock"):
            store.enqueue(["key"])


def test_a_store_exposes_the_time_it_waited(path, hold):
    with SQLiteWorkStore(path, ALONE) as store:
        before = store.gate_wait_seconds
        holder = hold()
        threading.Timer(0.2, holder.let_go).start()
        store.enqueue(["key"])
        assert store.gate_wait_seconds - before >= 0.1


@pytest.mark.parametrize("patience", [60, 0.2], ids=["then goes on", "in vain"])
def test_the_time_counts_that_a_program_holds_the_database_itself(path, patience):
    with (
        SQLiteWorkStore(path, ALONE, patience=patience) as store,
        closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as outside,
    ):
        before = store.gate_wait_seconds
        outside.execute("BEGIN IMMEDIATE")
        if patience > 1:
            threading.Timer(0.3, outside.execute, ["ROLLBACK"]).start()
            store.enqueue(["key"])
        else:
            with pytest.raises(StoreUnavailableError, match="locked"):
                store.enqueue(["key"])
            outside.execute("ROLLBACK")
        assert store.gate_wait_seconds - before >= 0.15


def test_writes_that_nobody_hinders_are_no_waiting(path):
    with SQLiteWorkStore(path, ALONE) as store:
        before = store.gate_wait_seconds
        began = time.monotonic()
        for number in range(300):
            store.enqueue([str(number)])
        # All but what the machine made of it: a thread that is not scheduled seems to wait.
        assert store.gate_wait_seconds - before < 0.5 * (time.monotonic() - began)


def test_a_store_that_waits_in_vain_says_so_and_works_later(path, hold):
    with SQLiteWorkStore(path, ALONE, patience=0.1) as store:
        holder = hold()
        with pytest.raises(StoreUnavailableError, match="held"):
            store.enqueue(["key"])
        assert store.counts()["pending"] == 0
        holder.let_go()
        assert store.enqueue(["key"]) == 1


def test_a_database_locked_from_outside_is_waited_for_and_told(path):
    with (
        SQLiteWorkStore(path, ALONE, patience=0.1) as store,
        closing(sqlite3.connect(path, isolation_level=None)) as outside,
    ):
        outside.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError, match=r"locked.*Another program"):
            store.enqueue(["key"])
        outside.execute("ROLLBACK")
        assert store.enqueue(["key"]) == 1


def test_the_gate_is_open_between_calls_even_after_errors(path, store, lock):
    store.enqueue(["key"])
    claim = store.claim()[0]
    assert is_free(lock)
    with pytest.raises(ZeroDivisionError), store.group():
        raise ZeroDivisionError
    assert is_free(lock)
    store.complete(claim)
    assert is_free(lock)


def test_closing_is_done_through_the_gate(path, hold):
    store = SQLiteWorkStore(path, ALONE, patience=60)
    store.enqueue(["key"])
    holder = hold()
    closing = threading.Thread(target=store.close)
    closing.start()
    closing.join(0.3)
    assert closing.is_alive()
    assert path.with_name("crawl.sqlite3-wal").exists()
    holder.let_go()
    closing.join(60)
    assert not path.with_name("crawl.sqlite3-wal").exists()


def test_a_store_that_nobody_closes_is_closed_through_the_gate_as_well(path, hold):
    code = (
        "import sys\n"
        "from scrapy_hexshard import SQLiteWorkStore, ShardSpec\n"
        "store = SQLiteWorkStore(sys.argv[1], ShardSpec(0, 1))\n"
        "store.enqueue(['key'])\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"ready\n"
    holder = hold()
    with pytest.raises(subprocess.TimeoutExpired):
        process.communicate(b"\n", timeout=0.5)
    holder.let_go()
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert not path.with_name("crawl.sqlite3-wal").exists()


def test_a_process_may_end_while_a_thread_still_calls(path):
    code = (
        "import sys, threading\n"
        "from scrapy_hexshard import SQLiteWorkStore, ShardSpec, StoreError\n"
        "store = SQLiteWorkStore(sys.argv[1], ShardSpec(0, 1))\n"
        "started = threading.Event()\n"
        "def work():\n"
        "    try:\n"
        "        while True:\n"
        "            store.enqueue(['key'])\n"
        "            started.set()\n"
        "    except StoreError:\n"
        "        pass\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "started.wait()\n"
    )
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", code, path], timeout=120, check=False)
        assert ended.returncode == 0
    with SQLiteWorkStore(path, ALONE) as store:
        assert store.counts()["pending"] == 1


class TestForks:
    def test_a_child_is_told_to_open_its_own(self, store):
        store.enqueue(["key"])

        def use():
            for call in (store.counts, store.claim, lambda: store.enqueue(["more"])):
                with pytest.raises(StoreError, match="before a fork"):
                    call()
            store.close()

        in_child(use)
        assert store.claim() == ["key"]

    def test_a_child_may_open_the_same_file(self, path, store):
        store.enqueue(["key"])

        def use():
            with SQLiteWorkStore(path, ALONE) as own:
                own.complete(*own.claim())

        in_child(use)
        assert store.counts()["done"] == 1

    def test_a_child_does_not_keep_its_parents_gate(self, path, store, lock):
        with store.group():
            store.enqueue(["key"])
            child = subprocess_that_waits()
            # The parent's own descriptor gone, as if it had been killed, nobody holds the lock.
            os.close(store._db._gate._descriptor)
            freed = is_free(lock)
            store._db._gate._descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert freed
        assert store.claim() == ["key"]


def subprocess_that_waits():
    """The pid of a forked child, once what it does after a fork is done."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, b".")
        while True:
            signal.pause()
    os.close(write)
    assert os.read(read, 1) == b"."
    os.close(read)
    return pid


def in_child(deed):
    pid = os.fork()
    if pid == 0:
        try:
            deed()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
