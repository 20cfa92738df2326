"""A duplicate filter whose scope is one attempt of one unit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy.dupefilters import RFPDupeFilter

from scrapy_hexshard.components.request_codec import TOKEN
from scrapy_hexshard.components.worker import WorkerExtension

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler


class UnitDupeFilter(RFPDupeFilter):
    """Filters a request that the same attempt of the same unit has made already.

    Neither another unit (two products with one price API) nor an earlier attempt filters it, so
    what is crawled does not depend on the number of shards. With ``HEXSHARD_FOLLOW = "drop"`` all
    units share one filter, as in plain Scrapy, and only a failed attempt's requests are forgotten.
    A request of no unit is filtered as in plain Scrapy.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._shared: set[bytes] | None = None
        self._of_attempt: dict[int, set[bytes]] = {}

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        self = super().from_crawler(crawler)
        worker = crawler.get_extension(WorkerExtension)
        if worker is not None and worker.work is not None:
            self._shared = set() if worker.config.follow == "drop" else None
            worker.work.units.on_attempt_end(self.forget)
        return self

    def request_seen(self, request: Request) -> bool:
        token = request.meta.get(TOKEN)
        if token is None:
            return super().request_seen(request)
        own = self._of_attempt.setdefault(token, set())
        seen = own if self._shared is None else self._shared
        fingerprint = self.fingerprinter.fingerprint(request)
        if fingerprint in seen:
            return True
        seen.add(fingerprint)
        own.add(fingerprint)
        return False

    def forget(self, token: int, failed: bool) -> None:
        """Free what the attempt of *token* has requested."""
        requested = self._of_attempt.pop(token, None)
        if requested and self._shared is not None and failed:
            self._shared -= requested
