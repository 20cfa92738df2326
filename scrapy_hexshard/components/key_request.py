"""The request of a claimed key: built by the spider, stored with the key, or the key itself."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from scrapy import Request, Spider

from scrapy_hexshard.components.ending import Ending
from scrapy_hexshard.components.request_codec import (
    OWN,
    PayloadIsNoRequestError,
    decode_request,
    holds_request,
    is_live,
    of_unit,
    stored_depth,
)
from scrapy_hexshard.store.contract import Claim
from scrapy_hexshard.units import Unit

logger = logging.getLogger(__name__)


class NoRequestError(Exception):
    """A key that is no URL, and nothing that builds a request for it."""


class KeyRequests:
    """Builds the request each unit begins with; those in *live* could not be stored."""

    def __init__(self, ending: Ending, spider: Spider, live: Mapping[str, Request]) -> None:
        self._ending = ending
        self._spider = spider
        self._live = live

    @property
    def by_spider(self) -> bool:
        """Whether the spider itself builds them all, with its request_for_key()."""
        return hasattr(self._spider, "request_for_key")

    def first(self, unit: Unit, claim: Claim) -> Request | None:
        """The key's own request, a fresh copy; None if there is none, which the unit is told."""
        try:
            request = self._build(claim)
        except PayloadIsNoRequestError as error:
            unit.fail(f"payload: {error}", permanent=True)
        except NoRequestError:
            unit.interrupted = True
            logger.error(  # noqa: TRY400 - a traceback would say nothing more
                "The key %s is no URL, and the spider has no request_for_key(key, payload) to "
                "build a request for it. Add one; the key stays pending.",
                claim,
            )
            self._ending.stop("no_request")
        except Exception as error:
            logger.exception("request_for_key failed for %s", claim)
            unit.fail(f"spider: {type(error).__name__}")
        else:
            request = of_unit(request, claim.token)
            request.meta[OWN] = True
            return request
        return None

    def _build(self, claim: Claim) -> Request:
        if (build := getattr(self._spider, "request_for_key", None)) is not None:
            payload = json.loads(claim.payload or "null")
            stored = holds_request(claim.payload)
            request = build(str(claim), None if stored else payload)
            if not isinstance(request, Request):
                raise TypeError(f"request_for_key returned {type(request).__name__}, no Request")
            if stored and (depth := stored_depth(payload)) is not None:
                request.meta.setdefault("depth", depth)
            return request
        if is_live(claim.payload):
            return self._live[claim].copy()
        if claim.payload is not None:
            return decode_request(claim.payload, self._spider, claim)
        try:
            # As Scrapy's own start(): what is asked for by name is not a duplicate.
            return Request(str(claim), dont_filter=True)
        except ValueError:
            raise NoRequestError from None
