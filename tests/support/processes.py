"""Real Scrapy processes in a folder of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from scrapy import version_info

from scrapy_hexshard import SQLiteWorkStore

PATIENCE = 60.0

LOOPS: dict[str, list[str]] = {
    "asyncio": [],
    "default": ["-s", "TWISTED_REACTOR=twisted.internet.epollreactor.EPollReactor"],
    "reactorless": ["-s", "TWISTED_REACTOR_ENABLED=False"],
}

# Before 2.19 Scrapy needs httpx to download without a reactor.
CAN_BE_REACTORLESS = version_info >= (2, 19) or find_spec("httpx") is not None

SETTINGS = """
ADDONS = {"scrapy_hexshard.HexShardAddon": 300}
TELNETCONSOLE_ENABLED = False
RETRY_TIMES = 0
HEXSHARD_STORE = "crawl.sqlite3"
HEXSHARD_ITEMS = True
HEXSHARD_MAX_ATTEMPTS = 1
"""


@dataclass
class Ended:
    """What a process left behind."""

    code: int
    out: str
    err: str


@dataclass
class Project:
    """A Scrapy project in *folder* whose spiders are in one module."""

    folder: Path
    origin: str
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def store(self) -> Path:
        return self.folder / "crawl.sqlite3"

    def write(self, spiders: str, settings: str = SETTINGS) -> None:
        """Make the project; *spiders* may use ``scrapy``, ``Request`` and ``ORIGIN``."""
        head = f"import scrapy\nfrom scrapy import Request\n\nORIGIN = {self.origin!r}\n"
        (self.folder / "scrapy.cfg").write_text("[settings]\ndefault = settings\n")
        (self.folder / "settings.py").write_text(
            'BOT_NAME = "shop"\nSPIDER_MODULES = ["spiders"]\n' + textwrap.dedent(settings)
        )
        (self.folder / "spiders.py").write_text(head + textwrap.dedent(spiders))

    def start(self, *arguments: str, env: dict[str, str] | None = None, **more: Any) -> Any:
        """A running ``scrapy`` with these arguments; its output goes to out.txt and err.txt."""
        return self.python("-m", "scrapy", *arguments, env=env, **more)

    def python(self, *arguments: str, env: dict[str, str] | None = None, **more: Any) -> Any:
        """A running Python with these arguments."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("CRAWL_", "HEX"))}
        with (self.folder / "out.txt").open("w") as out, (self.folder / "err.txt").open("w") as err:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.folder,
                env={**inherited, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                text=True,
                **more,
            )
        self.running.append(process)
        return process

    def wait(self, process: subprocess.Popen[str]) -> Ended:
        """How *process* ended."""
        code = process.wait(PATIENCE)
        return Ended(code, self.read("out.txt"), self.read("err.txt"))

    def run(self, *arguments: str, **more: Any) -> Ended:
        """``scrapy`` with these arguments, run to its end."""
        return self.wait(self.start(*arguments, **more))

    def read(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def until(self, condition: Callable[[], Any]) -> None:
        """Wait until *condition* holds."""
        give_up = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < give_up, self.read("err.txt")[-3000:]
            time.sleep(0.02)

    def stop_all(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait(PATIENCE)

    # The store.

    def load(self, *keys: str, shards: int = 1) -> None:
        with SQLiteWorkStore(str(self.store), shards) as store:
            store.enqueue(keys)

    def bytes_of_store(self) -> dict[str, bytes]:
        """The store's files by name, those that SQLite and the store keep beside it included."""
        files = self.folder.glob(f"{self.store.name}*")
        return {file.name: file.read_bytes() for file in files}

    @property
    def counts(self) -> dict[str, int]:
        with SQLiteWorkStore(str(self.store), None, readonly=True) as store:
            counts = store.counts(all_shards=True)
            return {str(state): count for state, count in counts.items() if count}

    @property
    def items(self) -> list[Any]:
        with SQLiteWorkStore(str(self.store), None, readonly=True) as store:
            return list(store.items())

    def rows(self, query: str) -> list[Any]:
        import sqlite3

        with closing(sqlite3.connect(f"file:{self.store}?mode=ro", uri=True)) as db:
            return db.execute(query).fetchall()

    @property
    def blame(self) -> list[Any]:
        """Attempts, deaths and lone deaths of what is pending."""
        return self.rows("SELECT DISTINCT attempts, deaths, lone_deaths FROM ready")

    @property
    def reasons(self) -> list[str]:
        """Why each worker ended, in order."""
        return [reason for (reason,) in self.rows("SELECT reason FROM workers ORDER BY id")]
