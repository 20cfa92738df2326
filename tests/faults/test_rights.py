"""Rights on the store's file that change in the middle of a crawl."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from support.sharded import CRAWL, Crawl, until

pytestmark = pytest.mark.parametrize("shop_options", [("--delay=0.05",)])
SUPPORT = Path(__file__).parents[1] / "support"
UNPRIVILEGED = (str(SUPPORT / "unprivileged.py"), *CRAWL)
NOBODY = 65534


def readonly(store: Path) -> None:
    store.chmod(0o444)


def of_another_user(store: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    os.chown(store, NOBODY, NOBODY)
    store.chmod(0o600)


def mend(store: Path) -> None:
    if os.geteuid() == 0:
        os.chown(store, 0, 0)
    store.chmod(0o644)


def is_whole(store: Path) -> bool:
    with closing(sqlite3.connect(store)) as db:
        return bool(db.execute("PRAGMA integrity_check").fetchone() == ("ok",))


@pytest.mark.parametrize("harm", [readonly, of_another_user])
def test_a_store_that_may_not_be_written_any_more_refuses_who_starts_with_a_sentence(
    sharded: Crawl, harm: Callable[[Path], None]
) -> None:
    """Workers keep what they have open and go on: it is their successors that may not open it."""
    sharded.start("--max-restarts=1", command=UNPRIVILEGED)
    sharded.wait_until_done(20)
    file = sharded.store.stat().st_ino
    harm(sharded.store)
    killed = sharded.workers()[0]
    os.kill(killed, signal.SIGKILL)
    until(lambda: "Cannot write" in sharded.text or sharded.ended, "a sentence")
    assert sharded.wait() == 1
    assert sharded.count("done") > 150
    assert f"Cannot write {sharded.store}. Give this user write access." in sharded.text
    assert "store_error" in sharded.text
    assert "Traceback" not in sharded.text
    assert sharded.store.stat().st_ino == file
    left = sharded.folder.glob("*.sqlite3*")
    beside = {each.name.removeprefix("crawl.sqlite3") for each in left}
    assert beside <= {"", "-wal", "-shm", ".lock"}
    refused = sharded.count("pending") + sharded.count("running")
    assert refused > 0
    # Once more, all of them are refused; and nothing was changed.
    sharded.start(command=UNPRIVILEGED)
    assert sharded.wait() == 1
    assert "Traceback" not in sharded.text
    assert sharded.count("pending") + sharded.count("running") == refused
    mend(sharded.store)
    assert is_whole(sharded.store)
    sharded.start(command=UNPRIVILEGED)
    assert sharded.wait() == 0, sharded.text[-4000:]
    assert sharded.complaints() == []


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if sys.platform != "linux" or shutil.which("gcc") is None:
        pytest.skip("writes are refused by a preloaded library: needs Linux and a C compiler")
    library = tmp_path_factory.mktemp("shim") / "readonly.so"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    source = SUPPORT / "readonly.c"
    subprocess.run(["gcc", *flags, "-o", library, source, "-ldl"], check=True)
    return library


def test_a_disk_that_becomes_readonly_under_the_crawl_stops_it_with_a_sentence(
    sharded: Crawl, shim: Path
) -> None:
    flag = sharded.folder / "readonly"
    env = {
        "LD_PRELOAD": str(shim),
        "READONLY_FLAG": str(flag),
        "READONLY_PATH": str(sharded.store),
    }
    sharded.start(env=env)
    sharded.wait_until_done(20)
    file = sharded.store.stat().st_ino
    flag.touch()
    assert sharded.wait() == 1, sharded.text[-4000:]
    told = [line for line in sharded.text.splitlines() if "The store failed, so" in line]
    print(*told, sep="\n")
    assert len(told) == 4
    assert all(f"Cannot use the store {sharded.store}: " in line for line in told)
    assert "Traceback" not in sharded.text
    assert sharded.store.stat().st_ino == file
    assert is_whole(sharded.store)
    assert 20 <= sharded.count("done") < 290
    flag.unlink()
    sharded.start(env=env)
    assert sharded.wait() == 0, sharded.text[-4000:]
    assert sharded.complaints() == []
