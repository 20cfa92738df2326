"""A fresh shop and one crawl of it, to be run to its end or killed on the way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any
from urllib.request import urlopen

from crash_findings import Findings, compare, finished_products
from crash_processes import Ended, Processes, children_of, kill, started
from crash_sides import Crawl, Side
from crawl import PROJECT, environment, open_shop
from machine import scratch
from scale import Scale

KILLED_AT = 0.3  # of the products


@dataclass(frozen=True, slots=True)
class Scene:
    """What a crawl has to do with while it is measured."""

    side: Side
    place: Path
    shop: str
    truth: list[dict[str, Any]]
    crawl: Crawl
    patience: float

    def run(self) -> Ended:
        """Start the crawl, or go on with it, and wait for its end."""
        before = self.crawl.server_cpu()
        with self._started() as processes:
            in_time = processes.wait(self.patience)
            processes.stop()
            ended = processes.ended(in_time=in_time)
        return replace(ended, cpu=ended.cpu + self.crawl.server_cpu() - before)

    def run_and_kill(self) -> Ended:
        """Start the crawl and kill its workers, all at once, on the way."""
        with self._started() as processes, self._access_log.open("rb") as log:
            in_time = processes.wait(self.patience, self._is_on_the_way(log))
            workers = processes.pids()
            if self.crawl.under_launcher:
                workers = children_of(workers)
            if not workers or not in_time:
                raise SystemExit(f"{self.side.name} did not come to its kill:\n{self._output()}")
            kill(workers)
            in_time = processes.wait(self.patience)
            processes.stop()
            return processes.ended(in_time=in_time)

    def findings(self) -> Findings:
        """What is there so far."""
        with self._access_log.open("rb") as log:
            asked = [json.loads(line) for line in log]
        return compare(self.truth, self.crawl.collect(), asked)

    def said(self) -> str:
        """How the crawl says that it has ended."""
        return self.crawl.said([file.read_text() for file in self.place.glob(self.crawl.logs)])

    @property
    def _access_log(self) -> Path:
        return self.place / "access.jsonl"

    def _started(self) -> AbstractContextManager[Processes]:
        env = {**environment(self.shop), **self.crawl.env}
        return started(self.crawl.commands, PROJECT, env, self.place / "output")

    def _is_on_the_way(self, log: IO[bytes]) -> Callable[[], bool]:
        wanted = KILLED_AT * sum(bool(each["item"]) for each in self.truth)
        finished = 0

        def look() -> bool:
            nonlocal finished
            finished += finished_products(log)
            return finished >= wanted

        return look

    def _output(self) -> str:
        return "".join(file.read_text()[-2000:] for file in self.place.glob("output/*.log"))


@contextmanager
def scene(side: Side, folder: Path, scale: Scale) -> Iterator[Scene]:
    """A crawl of *side* that has not begun, in a shop that nobody has been to."""
    with scratch(folder) as place:
        options = [f"--products={scale.crash_products}", f"--log={place}/access.jsonl"]
        with open_shop(*options) as shop, side.open(place) as crawl:
            with urlopen(f"{shop}/truth.json") as answer:
                truth = json.load(answer)
            yield Scene(side, place, shop, truth, crawl, scale.patience)
