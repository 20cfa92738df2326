"""Sends a worker's requests through its own proxy, and keeps the credentials in the downloader."""

from __future__ import annotations

import base64
import binascii
from traceback import format_exception
from typing import TYPE_CHECKING
from urllib.request import getproxies
from weakref import WeakSet

from scrapy_hexshard.components.proxy_problems import (
    blame_for_error,
    blame_for_response,
    blame_for_url,
    causes,
)
from scrapy_hexshard.components.proxy_support import check_handlers
from scrapy_hexshard.components.secret_filter import hide_in_logs
from scrapy_hexshard.components.sentences import in_a_sentence
from scrapy_hexshard.proxy_url import own_proxy, own_secrets, secrets_in, userinfo_secrets
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

    Without a ``PROXY_URL`` it does the same for a proxy from the environment. In either case, and
    for a proxy that a request names, it tells the proxy's errors from the origin's.
    """

    def __init__(
        self,
        address: str | None = None,
        authorization: str | None = None,
        secrets: frozenset[str] = frozenset(),
    ) -> None:
        self._address = address
        self._authorization = authorization
        self._secrets = secrets
        self._redactor = Redactor(secrets)
        self._sent: WeakSet[Request] = WeakSet()

    @classmethod
    @in_a_sentence()
    def from_crawler(cls, crawler: Crawler) -> Self:
        secrets = own_secrets() | secrets_in(getproxies().values())
        hide_in_logs(secrets)
        proxy = own_proxy()
        if proxy is None:
            return cls(secrets=secrets)
        check_handlers(proxy, crawler.settings)
        secrets |= proxy.secrets
        credentials = proxy.credentials(crawler.settings.get("HTTPPROXY_AUTH_ENCODING") or "utf-8")
        if credentials is None:
            return cls(proxy.address, secrets=secrets)
        secrets |= {credentials.rstrip("=")}
        hide_in_logs(secrets)
        return cls(proxy.address, f"Basic {credentials}", secrets)

    def process_request(self, request: Request) -> None:
        """Give the request our proxy, anew each time it is downloaded."""
        if self._address is not None and ("proxy" not in request.meta or _gives_way(request)):
            _forget_proxy(request)
            request.meta["proxy"] = self._address
            request.meta[_OURS] = True
            if self._authorization:
                request.headers["Proxy-Authorization"] = self._authorization
        if request.meta.get("proxy"):
            self._sent.add(request)

    def process_response(self, request: Request, response: Response) -> Response:
        """Take our proxy off the request before anything else sees it again."""
        if request in self._sent:
            self._sent.discard(request)
            blame_for_response(request, response)
        if _gives_way(request):
            _forget_proxy(request)
        return response

    def process_exception(self, request: Request, exception: Exception) -> None:
        """Take our proxy off a request that failed, and what is secret out of the error."""
        if request in self._sent:
            self._sent.discard(request)
            blame_for_error(request, exception)
        else:
            blame_for_url(request, exception)
        self._silence(request, exception)
        if _gives_way(request):
            _forget_proxy(request)

    def _silence(self, request: Request, error: Exception) -> None:
        # Some download handlers write the whole URL of the proxy into their errors.
        own = _secrets_named_by(request) - self._secrets
        if not (own or self._secrets):
            return
        hide = (Redactor(own | self._secrets) if own else self._redactor).hide_text
        told = "".join([*format_exception(error), *map(repr, causes(error))])
        if hide(told) != told:
            error.args = tuple(hide(arg) if isinstance(arg, str) else arg for arg in error.args)
            error.__cause__ = error.__context__ = None


def _gives_way(request: Request) -> bool:
    """Whether the proxy on the request is ours or the environment's, rather than its own."""
    # Scrapy marks with _scheme_proxy what it took from http_proxy and the like.
    return _OURS in request.meta or "_scheme_proxy" in request.meta


def _forget_proxy(request: Request) -> None:
    for name in (_OURS, "proxy", "_auth_proxy", "_scheme_proxy"):
        request.meta.pop(name, None)
    request.headers.pop("Proxy-Authorization", None)


def _secrets_named_by(request: Request) -> frozenset[str]:
    """What must stay secret of the proxy on the request."""
    secrets = secrets_in([str(request.meta.get("proxy", ""))])
    authorization = request.headers.get("Proxy-Authorization")
    if authorization is None:
        return secrets
    token = authorization.decode("latin-1").rpartition(" ")[2]
    return secrets | {token.rstrip("=")} | userinfo_secrets(_login_in(token))


def _login_in(token: str) -> str:
    try:
        login = base64.b64decode(token)
    except binascii.Error:
        return ""
    try:
        return login.decode()
    except UnicodeDecodeError:
        return login.decode("latin-1")
