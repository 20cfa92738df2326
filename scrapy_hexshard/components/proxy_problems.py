"""Problems of a proxy, told apart from those of the origin behind it.

What the origin may have caused as well is left alone, such as a timeout or a page with status 502.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterator
from errno import ECONNREFUSED, EHOSTUNREACH, ENETUNREACH
from socket import gaierror
from typing import Any
from weakref import WeakSet

from scrapy import Request
from scrapy.exceptions import UnsupportedURLSchemeError
from scrapy.http import Response
from scrapy.spidermiddlewares.httperror import HttpError
from scrapy.utils.url import add_http_if_no_scheme
from twisted.internet.error import DNSLookupError
from twisted.python.failure import Failure

from scrapy_hexshard.proxy_url import is_proxy_url

UNAUTHORIZED = 407

_MARK = "hexshard_proxy_problem"
_INVALID = "invalid url"
_unauthorized: WeakSet[Request] = WeakSet()


def proxy_problem(error: BaseException) -> str | None:
    """What is wrong with the proxy of a request that ended with *error*; None if it is not that."""
    if isinstance(error, HttpError):
        return str(UNAUTHORIZED) if error.response.request in _unauthorized else None
    return vars(error).get(_MARK)


def blame_for_response(request: Request, response: Response) -> None:
    """Remember whether the *response* to a *request* sent through a proxy is the proxy's own."""
    proxy = add_http_if_no_scheme(request.meta.get("proxy") or "")
    # Any other page comes from the origin, through a tunnel.
    is_forwarded = request.url.startswith("http:") and proxy.startswith("http")
    if is_forwarded and response.status == UNAUTHORIZED:
        _unauthorized.add(request)
    else:
        _unauthorized.discard(request)


def blame_for_error(request: Request, error: Exception) -> None:
    """Mark an *error* that a *request* sent through a proxy ended with, if it is the proxy's."""
    proxy = add_http_if_no_scheme(request.meta.get("proxy") or "")
    problems = (_problem(cause, request.url, proxy) for cause in causes(error))
    if problem := next(filter(None, problems), None):
        vars(error)[_MARK] = problem


def blame_for_url(request: Request, error: Exception) -> None:
    """Mark an *error* that kept a *request* from being sent, if it is the URL of its proxy."""
    proxy = request.meta.get("proxy")
    if isinstance(proxy, str) and _is_about_url(error, add_http_if_no_scheme(proxy)):
        vars(error)[_MARK] = _INVALID


def causes(error: BaseException) -> Iterator[BaseException]:
    """*error* and all that led to it."""
    found = [error]
    for each in found:
        yield each
        found += [more for more in _direct_causes(each) if more not in found]


def _direct_causes(error: BaseException) -> Iterator[BaseException]:
    # httpcore raises its errors "from None". Any other context may be that of another request, as
    # Twisted calls back one from within another.
    if before := error.__cause__ or (error.__context__ if error.__suppress_context__ else None):
        yield before
    if isinstance(error, BaseExceptionGroup):
        yield from error.exceptions
    for reason in getattr(error, "reasons", ()):  # of Twisted's ResponseFailed
        if isinstance(reason, Failure) and reason.value is not None:
            yield reason.value


# With a proxy between, no other host is looked up or connected to.
_BY_ERRNO = {ECONNREFUSED: "refused", EHOSTUNREACH: "unreachable", ENETUNREACH: "unreachable"}


def _problem(error: BaseException, url: str, proxy: str) -> str | None:
    """What is wrong with *proxy*, as one cause of an error tells it."""
    name = f"{type(error).__module__}.{type(error).__name__}"
    if isinstance(error, ssl.SSLError) or name == "OpenSSL.SSL.Error":
        # With a page of https it may be the TLS of the origin that failed.
        return _broken_tls(error) if url.startswith("http:") else None
    if _is_about_url(error, proxy):
        return _INVALID
    if _is_about_support(error, proxy):
        return "unsupported"
    if isinstance(error, DNSLookupError | gaierror):
        return "not found"
    number = getattr(error, "errno", None) or getattr(error, "osError", None)
    if problem := _BY_ERRNO.get(number or 0):
        return problem
    read = _READERS.get(name)
    return read(error) if read else None


_ABOUT_URLS = (TypeError, ValueError, OverflowError, AssertionError, UnsupportedURLSchemeError)


def _is_about_url(error: BaseException, proxy: str) -> bool:
    return isinstance(error, _ABOUT_URLS) and not is_proxy_url(proxy)


def _is_about_support(error: BaseException, proxy: str) -> bool:
    if isinstance(error, UnsupportedURLSchemeError):
        return proxy.startswith("socks")
    return isinstance(error, NotImplementedError | ValueError) and "prox" in str(error).lower()


def _broken_tls(error: BaseException) -> str:
    is_distrust = "certificate verify failed" in str(error)
    return "certificate not valid" if is_distrust else "no TLS"


def _refused_tunnel(error: Any) -> str:
    """Of Scrapy's TunnelError, which has what the proxy answered in its text only."""
    status = re.search(r"\[\{'status': (\d{3})", str(error))
    return status[1] if status else "no HTTP"


_SOCKS_PROBLEMS = {
    "Invalid username/password": "login refused",
    "Requested USERNAME/PASSWORD": "login refused",
    "Requested NO AUTHENTICATION": "login wanted",
    "Proxy Server could not connect: Connection not allowed": "not allowed",
}


def _refused_connection(error: Any) -> str | None:
    """Of httpx: the status of a refused tunnel, or what a SOCKS proxy replied."""
    text = str(error)
    if status := re.match(r"\d{3}\b", text):
        return status[0]
    return next((what for start, what in _SOCKS_PROBLEMS.items() if text.startswith(start)), None)


# By name, as a project has only those packages that its download handlers need.
_READERS: dict[str, Callable[[Any], str | None]] = {
    "scrapy.core.downloader.handlers.http11.TunnelError": _refused_tunnel,
    "httpx.ProxyError": _refused_connection,
    "httpx2.ProxyError": _refused_connection,
    "aiohttp.client_exceptions.ClientHttpProxyError": lambda error: str(error.status),
}
