"""Which proxies the download handlers of Scrapy itself can use; those of others are trusted to."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from scrapy import version_info
from scrapy.settings import BaseSettings

from scrapy_hexshard.errors import SettingError
from scrapy_hexshard.proxy_url import PROXY_VARIABLE, Proxy

_OF_SCRAPY = "scrapy.core.downloader.handlers."
_HTTPX = f"{_OF_SCRAPY}_httpx.HttpxDownloadHandler"
_AIOHTTP = f"{_OF_SCRAPY}_aiohttp.AiohttpDownloadHandler"
_HTTP2 = f"{_OF_SCRAPY}http2.H2DownloadHandler"
_HTTP = (
    f"{_OF_SCRAPY}http11.HTTP11DownloadHandler",
    f"{_OF_SCRAPY}http10.HTTP10DownloadHandler",
    f"{_OF_SCRAPY}http.HTTPDownloadHandler",
)


def check_handlers(proxy: Proxy, settings: BaseSettings) -> None:
    """Raise SettingError if the handlers in *settings* would fail on *proxy*, or go past it.

    Handlers that are not Scrapy's own pass, those derived from Scrapy's included.
    """
    handlers = settings.getwithbase("DOWNLOAD_HANDLERS")
    for pages in ("http", "https"):
        name = _name(handlers.get(pages))
        if remedy := _remedy(name, proxy.scheme, pages) or _remedy_for_login(name, proxy):
            raise SettingError(
                f"{PROXY_VARIABLE} is a proxy of the kind {proxy.scheme}, which Scrapy's "
                f"{name.rpartition('.')[2]} cannot use for {pages} pages: {remedy}."
            )


def _name(handler: Any) -> str:
    """The full name of a handler, which the settings hold by its name or as a class."""
    if isinstance(handler, type):
        return f"{handler.__module__}.{handler.__qualname__}"
    return str(handler)


def _remedy(name: str, proxy: str, pages: str) -> str | None:
    """What lets handler *name* use a proxy of that scheme for such pages; None if it can."""
    is_socks = proxy.startswith("socks")
    if name == _HTTPX and is_socks:
        is_installed = version_info >= (2, 17) and find_spec("socksio")
        return None if is_installed else "install scrapy[httpx]>=2.18"
    if is_socks and name in (*_HTTP, _AIOHTTP):
        return (
            f"install scrapy[httpx]>=2.18 and set DOWNLOAD_HANDLERS to {{'http': '{_HTTPX}', "
            f"'https': '{_HTTPX}'}}"
        )
    if name == _HTTP2:
        return "set another handler for them in DOWNLOAD_HANDLERS"
    # It went past any proxy, or sent the credentials to it in plain text.
    if version_info < (2, 16) and (name == _HTTPX or (name in _HTTP and proxy == pages == "https")):
        return "install Scrapy 2.16 or later"
    return None


def _remedy_for_login(name: str, proxy: Proxy) -> str | None:
    if name in (_HTTPX, _AIOHTTP) and "/" in "".join(proxy.login or ()):
        # They take what is before the slash for the host, and so would connect elsewhere.
        return "it misreads a user name or password with a /, so set another one or another handler"
    return None
