"""Sends a worker's requests through its own proxy, and keeps the credentials in the downloader."""

from __future__ import annotations

from traceback import format_exception
from typing import TYPE_CHECKING

from scrapy.exceptions import NotConfigured

from scrapy_hexshard.components.secret_filter import hide_in_logs
from scrapy_hexshard.components.sentences import in_a_sentence
from scrapy_hexshard.proxy_url import own_proxy, own_secrets
from scrapy_hexshard.redaction import Redactor

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

_OURS = "hexshard_proxy"


class ProxyMiddleware:
    """Sends every request through the proxy in ``PROXY_URL``, unless its meta names another.

    Its order is 950, next to the downloader: behind Scrapy's HTTP proxy middleware (750), so that a
    proxy chosen there from the environment gives way, and behind the HTTP cache (900), which would
    write the credentials to disk. A request holds them only while it is being downloaded; retries,
    redirects, callbacks, queues and stores never see them.
    """

    def __init__(self, address: str, authorization: str | None, redactor: Redactor) -> None:
        self._address = address
        self._authorization = authorization
        self._redactor = redactor

    @classmethod
    @in_a_sentence()
    def from_crawler(cls, crawler: Crawler) -> Self:
        hide_in_logs(own_secrets())
        proxy = own_proxy()
        if proxy is None:
            raise NotConfigured
        secrets = proxy.secrets
        credentials = proxy.credentials(crawler.settings.get("HTTPPROXY_AUTH_ENCODING") or "utf-8")
        if credentials is not None:
            secrets |= {credentials.rstrip("=")}
            hide_in_logs(secrets)
        authorization = None if credentials is None else f"Basic {credentials}"
        return cls(proxy.address, authorization, Redactor(secrets))

    def process_request(self, request: Request) -> None:
        """Give the request our proxy, anew each time it is downloaded."""
        meta = request.meta
        # Scrapy marks with _scheme_proxy what it took from http_proxy and the like.
        if "proxy" in meta and _OURS not in meta and "_scheme_proxy" not in meta:
            return
        _forget_proxy(request)
        meta["proxy"] = self._address
        meta[_OURS] = True
        if self._authorization:
            request.headers["Proxy-Authorization"] = self._authorization

    def process_response(self, request: Request, response: Response) -> Response:
        """Take our proxy off the request before anything else sees it again."""
        if _OURS in request.meta:
            _forget_proxy(request)
        return response

    def process_exception(self, request: Request, exception: Exception) -> None:
        """Take our proxy off a request that failed, and what is secret out of the error."""
        if _OURS in request.meta:
            _forget_proxy(request)
            self._silence(exception)

    def _silence(self, error: Exception) -> None:
        # Some download handlers write the whole URL of the proxy into their errors.
        trace = "".join(format_exception(error))
        if self._redactor.hide_text(trace) != trace:
            hide = self._redactor.hide_text
            error.args = tuple(hide(arg) if isinstance(arg, str) else arg for arg in error.args)
            error.__cause__ = error.__context__ = None


def _forget_proxy(request: Request) -> None:
    for name in (_OURS, "proxy", "_auth_proxy", "_scheme_proxy"):
        request.meta.pop(name, None)
    request.headers.pop("Proxy-Authorization", None)
