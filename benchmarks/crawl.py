"""Measures what the add-on costs a crawl. README.md beside it says what each figure means."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from command import Benchmark, run
from machine import load, scratch
from report import Figure, Section, ratios
from scale import Scale

T = TypeVar("T")

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent / "example_project"
PACKAGES = ("scrapy-hexshard", "Scrapy", "Twisted", "lxml", "w3lib")
PLAIN = "without the add-on"
# The same spider with the same start() in each.
VARIANTS = {
    PLAIN: ["-s", "ADDONS={}"],
    "with the add-on": ["-s", "HEXSHARD_ITEMS=False"],
    "with HEXSHARD_ITEMS": ["-s", "HEXSHARD_ITEMS=True"],
}
GOAL = 1.10
WORKERS = (1, 2, 4)
MORE_PRODUCTS = 3  # for workers, than for CPU time


@dataclass(frozen=True, slots=True)
class Crawl:
    """One crawl, times in seconds of CPU."""

    cpu: float  # from the opening of the spider to the end of the engine
    main_thread: float  # of that
    whole: float  # from the start of the process to its end
    pages: int


def cpu_time(folder: Path, scale: Scale) -> Section:
    """CPU time per page of each variant, in turn, and what the add-on makes of it."""
    crawls: dict[str, list[Crawl]] = {name: [] for name in VARIANTS}
    for number in range(scale.crawls):
        for name in rotated(list(VARIANTS), number):
            crawls[name].append(crawl(folder, scale.products, VARIANTS[name]))
    section = Section("cpu", "CPU time per page", _about_cpu(scale, crawls[PLAIN][0]))
    plain = [each.cpu / each.pages for each in crawls[PLAIN]]
    plain_whole = [each.whole / each.pages for each in crawls[PLAIN]]
    section.figures.append(_microseconds(PLAIN, plain))
    for name in list(VARIANTS)[1:]:
        cpu = [each.cpu / each.pages for each in crawls[name]]
        whole = [each.whole / each.pages for each in crawls[name]]
        other = [(each.cpu - each.main_thread) / each.pages for each in crawls[name]]
        added = [a - b for a, b in zip(cpu, plain, strict=True)]
        section.figures += [
            _microseconds(name, cpu),
            Figure(f"{name}: ratio", ratios(cpu, plain), at_most=GOAL),
            Figure(f"{name}: ratio of the least of each", (min(cpu) / min(plain),)),
            _microseconds(f"{name}: added", added),
            _microseconds(f"{name}: of it in the store's thread", other),
            Figure(f"{name}: ratio, start-up and end included", ratios(whole, plain_whole)),
        ]
    return section


def crawl(folder: Path, products: int, settings: Sequence[str]) -> Crawl:
    """A crawl of a fresh shop by the spider ``products`` in a process of its own."""
    with scratch(folder) as place, open_shop(f"--products={products}") as address:
        report, log = place / "cpu.json", place / "crawl.log"
        extension = json.dumps({"cpu_meter.CpuMeter": -100})  # hears that the spider opens first
        command = [
            *(sys.executable, "-m", "scrapy", "crawl", "products", *settings),
            *("-s", f"HEXSHARD_STORE={place}/crawl.sqlite3", "-s", f"LOG_FILE={log}"),
            *("-s", f"EXTENSIONS={extension}", "-s", f"CPU_METER_REPORT={report}"),
        ]
        os.sync()
        process = subprocess.Popen(command, cwd=PROJECT, env=environment(address))
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode or not report.exists():
            raise SystemExit(f"The crawl failed:\n{log.read_text()[-3000:]}")
        found = json.loads(report.read_text())
    whole = used.ru_utime + used.ru_stime
    return Crawl(found["cpu"], found["main_thread"], whole, found["pages"])


def throughput(folder: Path, scale: Scale) -> Section:
    """Pages per second of one, two and four workers of the launcher."""
    products = scale.products * MORE_PRODUCTS
    rounds = max(1, scale.rounds // 3)
    found: dict[int, list[float]] = {number: [] for number in WORKERS}
    for number in range(rounds):
        for shards in rotated(list(WORKERS), number):
            found[shards].append(pages_per_second(folder, products, shards))
    return Section(
        "workers",
        "Pages per second of the launcher's workers",
        f"`hexdigest-shard run` of the spider `products` over {products:,} products, with "
        "HEXSHARD_ITEMS, from the first page asked for to the last, as the shop's log has it. The "
        f"shop itself takes part of one of the {os.cpu_count()} cores, and so more workers than "
        f"cores cannot be faster here. Load average at the end: {load()}.",
        [
            Figure(f"{shards} worker{'s' * (shards > 1)}", tuple(rates), "pages/s")
            for shards, rates in found.items()
        ],
    )


def pages_per_second(folder: Path, products: int, shards: int) -> float:
    """The rate at which so many workers ask a shop for its pages."""
    with scratch(folder) as place:
        access = place / "access.jsonl"
        with open_shop(f"--products={products}", f"--log={access}") as address:
            command = [
                *(sys.executable, "-m", "scrapy_hexshard", "run", "--shards", str(shards)),
                *("--log-dir", str(place / "logs"), "--", sys.executable, "-m", "scrapy"),
                *("crawl", "products", "-s", f"HEXSHARD_STORE={place}/crawl.sqlite3"),
            ]
            done = subprocess.run(
                command,
                check=False,
                cwd=PROJECT,
                env=environment(address),
                capture_output=True,
                text=True,
            )
        if done.returncode:
            raise SystemExit(f"The launcher ended with {done.returncode}:\n{done.stdout[-3000:]}")
        requests = [json.loads(line) for line in access.read_text().splitlines()]
    times: list[float] = [
        each["time"] for each in requests if each["path"].startswith(("/p/", "/api/"))
    ]
    return len(times) / (max(times) - min(times))


@contextmanager
def open_shop(*options: str) -> Iterator[str]:
    """The address of the bundled shop, which runs in a process of its own."""
    command = [sys.executable, "-m", "shop", "--until-stdin-closes", *options]
    with subprocess.Popen(
        command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as shop:
        assert shop.stdout is not None
        try:
            yield shop.stdout.readline().strip()
        finally:
            shop.terminate()


def environment(shop: str) -> dict[str, str]:
    """That of a crawl: it finds the shop, and the meter beside this file."""
    paths = [str(HERE), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "SHOP_URL": shop, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def rotated(names: list[T], by: int) -> list[T]:
    """The names from another one on in each round, so that none is always first."""
    first = by % len(names)
    return [*names[first:], *names[:first]]


def _microseconds(name: str, seconds: Sequence[float]) -> Figure:
    return Figure(name, tuple(each * 1e6 for each in seconds), "µs")


def _about_cpu(scale: Scale, one: Crawl) -> str:
    return (
        f"User and system time of the crawling process alone, all its threads, per page "
        f"downloaded: {scale.products:,} products, {one.pages:,} pages, {scale.crawls} rounds, "
        "each variant in turn, the shop in another process. It is counted from the opening of the "
        "spider to the end of the engine, so that what is stored of the start requests counts and "
        "the import of modules does not; one line has the whole process. A ratio is that of one "
        "round; that of the least of each leaves out what else the machine did meanwhile. A "
        f"product is one key and about {one.pages / scale.products:.1f} pages. Load average at the "
        f"end: {load()}."
    )


BENCHMARKS: dict[str, Benchmark] = {"cpu": cpu_time, "workers": throughput}

if __name__ == "__main__":
    sys.exit(run("crawl.py", __doc__, BENCHMARKS, PACKAGES))
