"""A worker whose download handlers cannot use its proxy ends before its first page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import version_info
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.settings import Settings
from support.forward_proxy import USERINFO, PageServer
from support.proxied_crawl import HANDLERS, HTTPX, STORE, Run, assert_no_secret

from scrapy_hexshard.components import proxy_support
from scrapy_hexshard.components.proxy_support import check_handlers
from scrapy_hexshard.errors import SettingError
from scrapy_hexshard.proxy_url import parse_proxy

HTTP11 = "scrapy.core.downloader.handlers.http11.HTTP11DownloadHandler"
HTTP2 = "scrapy.core.downloader.handlers.http2.H2DownloadHandler"
AIOHTTP = "scrapy.core.downloader.handlers._aiohttp.AiohttpDownloadHandler"


@pytest.mark.parametrize(("handler", "scheme"), [("twisted", "socks5"), ("aiohttp", "socks5h")])
def test_a_socks_proxy_ends_the_crawl_with_a_sentence_that_names_the_setting(
    tmp_path: Path, handler: str, scheme: str
) -> None:
    if handler == "aiohttp" and version_info < (2, 19):
        pytest.skip("Scrapy before 2.19 has no handler for aiohttp")
    origin = PageServer()
    url = f"{scheme}://{USERINFO}@127.0.0.1:1"
    run = Run(tmp_path / "run").start(origin.address, "/1", url, **HANDLERS[handler], **STORE)
    text = run.end().everything()
    origin.close()
    [sentence] = [line for line in run.output.splitlines() if b"CRITICAL" in line]
    assert f"PROXY_URL is a proxy of the kind {scheme}".encode() in sentence
    assert b"DOWNLOAD_HANDLERS" in sentence
    assert HTTPX.encode() in sentence
    assert b"Traceback" not in text
    assert b"Crawled" not in text
    assert origin.asked == []
    assert_no_secret(text, url)


def check(url: str, **handlers: Any) -> None:
    check_handlers(parse_proxy("PROXY_URL", url), Settings({"DOWNLOAD_HANDLERS": handlers}))


class OfAThirdParty(HTTP11DownloadHandler):
    """Derived from Scrapy's, as some of those that drive a browser are."""


@pytest.mark.parametrize("handler", [OfAThirdParty, "their.package.Handler", None])
@pytest.mark.parametrize("scheme", ["http", "https", "socks5"])
def test_a_handler_that_is_not_scrapys_own_is_trusted_to(handler: Any, scheme: str) -> None:
    check(f"{scheme}://u:p@h:1", http=handler, https=handler)


@pytest.mark.parametrize("pages", ["http", "https"])
@pytest.mark.parametrize("handler", [HTTP11, HTTP11DownloadHandler, AIOHTTP])
def test_scrapys_other_handlers_know_no_socks(handler: Any, pages: str) -> None:
    handlers = {"http": OfAThirdParty, "https": OfAThirdParty, pages: handler}
    with pytest.raises(SettingError, match=f"cannot use for {pages} pages: install .*HttpxDown"):
        check("socks5://u:p@h:1", **handlers)
    check("http://u:p@h:1", **handlers)


@pytest.mark.parametrize("scheme", ["http", "socks5h"])
def test_the_handler_for_http2_knows_no_proxy(scheme: str) -> None:
    with pytest.raises(SettingError, match="H2DownloadHandler cannot use for https pages: set"):
        check(f"{scheme}://u:p@h:1", http=OfAThirdParty, https=HTTP2)


@pytest.mark.parametrize(
    ("version", "has_socksio", "scheme", "remedy"),
    [
        ((2, 15, 2), True, "http", "install Scrapy 2.16 or later"),
        ((2, 16, 0), True, "http", None),
        ((2, 16, 0), True, "socks5", r"install scrapy\[httpx\]>=2.18"),
        ((2, 17, 0), True, "socks5", None),
        ((2, 19, 0), False, "socks5", r"install scrapy\[httpx\]>=2.18"),
        ((2, 19, 0), False, "https", None),
    ],
)
def test_the_handler_for_httpx_needs_its_version_and_package(
    monkeypatch: pytest.MonkeyPatch,
    version: tuple[int, ...],
    has_socksio: bool,
    scheme: str,
    remedy: str | None,
) -> None:
    monkeypatch.setattr(proxy_support, "version_info", version)
    monkeypatch.setattr(proxy_support, "find_spec", lambda name: has_socksio or None)
    if remedy is None:
        check(f"{scheme}://u:p@h:1", http=HTTPX, https=HTTPX)
    else:
        with pytest.raises(SettingError, match=f"HttpxDownloadHandler cannot use .*: {remedy}"):
            check(f"{scheme}://u:p@h:1", http=HTTPX, https=HTTPX)


def test_scrapy_2_15_would_send_the_login_for_https_pages_in_plain_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check("http://u:p@h:1", http=HTTP11, https=HTTP11)
    monkeypatch.setattr(proxy_support, "version_info", (2, 16, 0))
    check("https://u:p@h:1", http=HTTP11, https=HTTP11)
    monkeypatch.setattr(proxy_support, "version_info", (2, 15, 2))
    check("https://u:p@h:1", http=HTTP11, https=OfAThirdParty)
    with pytest.raises(SettingError, match=r"for https pages: install Scrapy 2\.16"):
        check("https://u:p@h:1", http=HTTP11, https=HTTP11)


@pytest.mark.parametrize("handler", [HTTPX, AIOHTTP])
@pytest.mark.parametrize("userinfo", ["us%2Fer:password", "user:pass/word"])
def test_a_login_with_a_slash_is_not_for_handlers_that_misread_it(
    monkeypatch: pytest.MonkeyPatch, handler: str, userinfo: str
) -> None:
    monkeypatch.setattr(proxy_support, "version_info", (2, 19, 0))
    url = f"http://{userinfo.replace('/', '%2F')}@h:1"
    with pytest.raises(SettingError, match="it misreads a user name or password with a /") as error:
        check(url, http=handler, https=handler)
    assert "pass" not in str(error.value).replace("password with", "")
    check(url, http=HTTP11, https=HTTP11)
