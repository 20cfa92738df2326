"""A Scrapy extension that measures the CPU time of a crawl, start-up and shutdown left out."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy import signals

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler


class CpuMeter:
    """Writes what the process used between the opening of the spider and the end of the engine.

    That is the user and system time of all its threads, so the store's thread counts, too.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        crawler.signals.connect(self._opened, signal=signals.spider_opened)
        crawler.signals.connect(self._stopped, signal=signals.engine_stopped)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _opened(self) -> None:
        self._cpu, self._main = time.process_time(), time.thread_time()

    def _stopped(self) -> None:
        assert self._crawler.stats is not None
        stats = self._crawler.stats.get_stats()
        report = {
            "cpu": time.process_time() - self._cpu,
            "main_thread": time.thread_time() - self._main,
            "pages": stats.get("downloader/response_count", 0),
            "items": stats.get("item_scraped_count", 0),
            "done": stats.get("hexshard/done", 0),
            "reason": stats.get("finish_reason"),
        }
        Path(self._crawler.settings["CPU_METER_REPORT"]).write_text(json.dumps(report))
