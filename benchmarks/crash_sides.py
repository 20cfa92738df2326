"""The sides of the crash benchmark that need nothing but this package and Scrapy."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

OURS = "scrapy-hexshard"
WORKERS = 4
IN_FLIGHT = 16  # requests, by all workers together
PLACE = "$DIR"  # stands for the folder of a crawl in what the page shows
SCRAPY = (sys.executable, "-m", "scrapy", "crawl", "products")
HEXSHARD = (sys.executable, "-m", "scrapy_hexshard")
ERRORS = re.compile(r"'log_count/ERROR': (\d+)")
CLOSED = re.compile(r"Spider closed \((\w+)\)")


def _nothing() -> float:
    return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Crawl:
    """A crawl set up in a folder of its own: the same commands begin it and go on with it."""

    commands: Sequence[Sequence[str]]
    collect: Callable[[], bytes]  # what it brought home, as JSON lines
    said: Callable[[Sequence[str]], str]  # how it ended, by the text of its logs
    logs: str = "output/*.log"  # where these are, in its folder
    under_launcher: bool = False  # the workers are children of the one command
    env: Mapping[str, str] = field(default_factory=dict)
    server_cpu: Callable[[], float] = _nothing  # seconds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Side:
    """A way to crawl the shop and to resume."""

    name: str
    package: str  # the distribution whose version is named
    modules: tuple[str, ...] = ()  # that have to be there
    workers: str
    settings: Sequence[str]  # what the page shows
    fate: str  # what a kill does to it, and why
    open: Callable[[Path], AbstractContextManager[Crawl]]

    @property
    def is_installed(self) -> bool:
        return all(map(find_spec, self.modules))

    @property
    def full_name(self) -> str:
        return f"{self.package} {version(self.package)}, {self.name}"


def scrapy_options(settings: Mapping[str, str], place: Path, workers: int = 1) -> list[str]:
    """``-s`` for each of *settings*, and for this worker's part of the requests in flight."""
    each = str(IN_FLIGHT // workers)
    pace = {"CONCURRENT_REQUESTS": each, "CONCURRENT_REQUESTS_PER_DOMAIN": each}
    pairs = (f"{name}={value}" for name, value in {**settings, **pace}.items())
    return [part.replace(PLACE, str(place)) for pair in pairs for part in ("-s", pair)]


def shown(settings: Mapping[str, str]) -> list[str]:
    """The settings as they are told to a reader."""
    return [f"{name}={value}" for name, value in settings.items()]


def files_of(place: Path, pattern: str) -> bytes:
    """The files of that name one after the other."""
    return b"".join(file.read_bytes() for file in sorted(place.glob(pattern)))


def spiders_said(logs: Sequence[str]) -> str:
    """The finish reason of each Scrapy process, and how many errors it counted."""
    return counted(map(_spider_said, logs))


def _spider_said(log: str) -> str:
    reason = (CLOSED.findall(log) or ["nothing"])[-1]
    errors = ERRORS.findall(log)
    return f"{reason}, {errors[-1]} errors logged" if errors else reason


def counted(reasons: Iterable[str]) -> str:
    """The reason alone where all have the same, else each with its number."""
    numbers = Counter(reasons)
    many = len(numbers) > 1
    return ", ".join(f"{each} ({number})" if many else each for each, number in numbers.items())


def job(name: str, fate: str, **settings: str) -> Side:
    """Plain Scrapy in one process with a JOBDIR."""
    settings = {"ADDONS": "{}", "JOBDIR": f"{PLACE}/job", **settings}

    @contextmanager
    def open_crawl(place: Path) -> Iterator[Crawl]:
        options = [*scrapy_options(settings, place), "-o", f"{place}/items.jsonl"]
        yield Crawl(
            commands=[[*SCRAPY, *options]],
            collect=lambda: files_of(place, "items.jsonl"),
            said=spiders_said,
        )

    return Side(
        name=name,
        package="Scrapy",
        workers="1",
        settings=[*shown(settings), f"-o {PLACE}/items.jsonl"],
        fate=fate,
        open=open_crawl,
    )


def sharded(name: str, fate: str, *output: str, items: bool) -> Side:
    """This package: four workers under its launcher."""
    settings = {"HEXSHARD_STORE": f"{PLACE}/crawl.sqlite3", "HEXSHARD_ITEMS": str(items)}

    @contextmanager
    def open_crawl(place: Path) -> Iterator[Crawl]:
        options = scrapy_options(settings, place, WORKERS)
        feeds = [part.replace(PLACE, str(place)) for part in output]
        run = ["run", "--shards", str(WORKERS), "--log-dir", f"{place}/logs", "--"]
        yield Crawl(
            commands=[[*HEXSHARD, *run, *SCRAPY, *options, *feeds]],
            collect=(lambda: _exported(place)) if items else lambda: files_of(place, "items-*"),
            said=spiders_said,
            logs="logs/*.log",
            under_launcher=True,
        )

    return Side(
        name=name,
        package=OURS,
        workers=str(WORKERS),
        settings=[*shown(settings), " ".join(output) or "hexdigest-shard export"],
        fate=fate,
        open=open_crawl,
    )


def _exported(place: Path) -> bytes:
    file = place / "export.jsonl"
    command = [*HEXSHARD, "export", f"{place}/crawl.sqlite3", str(file)]
    subprocess.run(command, check=True, capture_output=True)
    return file.read_bytes()
