"""A sharded crawl of the shop, as its user starts it."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from check import complaints
from shop import catalogue, open_shop
from workers import workers_of

from scrapy_hexshard import SQLiteWorkStore, StoreError

PATIENCE = 120.0
PROJECT = Path(__file__).parents[2] / "example_project"
CRAWL = ("scrapy", "crawl", "products", "-a", "shard={shard}", "-a", "shards={shards}")


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE} s for {what}"
        time.sleep(0.05)


@dataclass
class Crawl:
    """A launcher with its workers on one store, and the truth about the shop they crawl."""

    folder: Path
    shop: str
    products: int
    shards: int = 4
    settings: tuple[str, ...] = ()
    terminal: int | None = None
    process: subprocess.Popen[bytes] | None = None
    log: bytearray = field(default_factory=bytearray)
    _reading: threading.Event = field(default_factory=threading.Event)

    @property
    def access_log(self) -> Path:
        return self.folder / "access.log"

    @property
    def store(self) -> Path:
        return self.folder / "crawl.sqlite3"

    def start(
        self,
        *options: str,
        command: tuple[str, ...] = CRAWL,
        env: dict[str, str] | None = None,
        on_a_terminal: bool = False,
    ) -> None:
        """Start the launcher with *options*, on a terminal of its own if asked for."""
        launcher = [sys.executable, "-m", "scrapy_hexshard", "run", f"--shards={self.shards}"]
        module = [] if command[0].endswith(".py") else ["-m"]
        worker = [sys.executable, *module, *command, "-s", f"HEXSHARD_STORE={self.store}"]
        if self.process is not None:
            self.process.wait()
        if on_a_terminal:
            self.terminal, output = pty.openpty()
        else:
            reader, output = os.pipe()
        self.process = subprocess.Popen(
            [*launcher, *options, "--", *worker, *self.settings],
            cwd=PROJECT,
            env={**os.environ, "SHOP_URL": self.shop, **(env or {})},
            stdin=output if on_a_terminal else subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            # Its own terminal must be the one that Ctrl-C is typed on.
            preexec_fn=_take_terminal if on_a_terminal else None,  # noqa: PLW1509
        )
        os.close(output)
        source = self.terminal if self.terminal is not None else reader
        self._reading.set()
        self._reader = threading.Thread(target=self._read, args=(source,), daemon=True)
        self._reader.start()

    def _read(self, fd: int) -> None:
        # Never blocked in read(), which would keep a terminal open that close_terminal() closes.
        with suppress(OSError, ValueError):  # the terminal, or its last program, has gone
            while self._reading.is_set():
                if select.select([fd], [], [], 0.1)[0]:
                    data = os.read(fd, 65_536)
                    if not data:
                        break
                    self.log += data
        self._reading.clear()

    def close_terminal(self) -> None:
        """Hang up, as a closed window does."""
        assert self.terminal is not None
        self._reading.clear()
        self._reader.join()
        os.close(self.terminal)

    @property
    def text(self) -> str:
        return self.log.decode(errors="replace")

    def workers(self) -> dict[int, int]:
        """The pids of the workers, by shard."""
        assert self.process is not None
        return workers_of(self.process.pid)

    def count(self, state: str) -> int:
        try:
            with SQLiteWorkStore(self.store, readonly=True) as store:
                return dict(store.counts(all_shards=True))[state]
        except StoreError:
            return 0  # no worker has made it yet

    def wait_until_done(self, keys: int) -> None:
        until(lambda: self.count("done") >= keys or self.ended, f"{keys} keys: {self.text[-2000:]}")
        assert not self.ended, self.text[-4000:]

    def wait_until_done_by_itself(self, keys: int) -> None:
        """The same, where no launcher runs."""
        until(lambda: self.count("done") >= keys, f"{keys} keys")

    @property
    def ended(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None

    def press_ctrl_c(self) -> None:
        assert self.terminal is not None
        os.write(self.terminal, b"\x03")

    def wait(self) -> int:
        """The exit code of the launcher."""
        assert self.process is not None
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the launcher did not end: {self.text[-4000:]}")

    def requests(self) -> int:
        """How many requests the shop has had, by its access log."""
        return len(self.access_log.read_text().splitlines())

    def fetched_again(self) -> list[str]:
        """Pages of products that the shop has served more often than once."""
        asked = map(json.loads, self.access_log.read_text().splitlines())
        # What the shop refuses at first, by 503, is asked for again within the same attempt.
        served = Counter(each["path"] for each in asked if each["status"] != 503)
        return sorted(path for path, times in served.items() if path[:3] == "/p/" and times > 1)

    def complaints(self) -> list[str]:
        """What is wrong with the export and the status, by the shop's own list."""
        items = self._command("export", str(self.store), "-").splitlines()
        status = json.loads(self._command("status", str(self.store), "--json"))
        truth = catalogue(self.products, 1)
        return complaints(truth, map(json.loads, items), status)

    def items(self) -> list[dict[str, object]]:
        """The items of the export, by the number of their product."""
        lines = self._command("export", str(self.store), "-").splitlines()
        return sorted(map(json.loads, lines), key=lambda item: item["id"])

    def outcomes(self) -> Counter[str]:
        """How many keys ended with which outcome."""
        return Counter(json.loads(self._command("status", str(self.store), "--json"))["outcomes"])

    def _command(self, *arguments: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-m", "scrapy_hexshard", *arguments], capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            pids = self.workers().values()
            self.process.kill()
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            self.process.wait()


@contextmanager
def sharded_crawl(folder: Path, *shop_options: str) -> Iterator[Crawl]:
    """A crawl of 300 products that is ready to be started."""
    log = f"--log={folder / 'access.log'}"
    with open_shop("--products=300", log, *shop_options) as address:
        crawl = Crawl(folder, address, 300)
        yield crawl
        crawl.close()


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
