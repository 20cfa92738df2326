"""A crawl with a dead proxy is told apart from one with a dead origin, by what is stored."""

from __future__ import annotations

import errno
import os
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from OpenSSL import SSL
from scrapy import Request, Spider, version_info
from scrapy.core.downloader.handlers.http11 import TunnelError
from scrapy.exceptions import CannotResolveHostError, DownloadFailedError
from scrapy.http import Response
from scrapy.spidermiddlewares.httperror import HttpError
from support.crawling import REACTORLESS, Crawl, crawl, crawl_test
from support.forward_proxy import ForwardProxy
from support.proxied_crawl import WAYS, without_proxies
from support.spiders import Never, Plain
from twisted.internet.error import NoRouteError
from twisted.python.failure import Failure
from twisted.web.client import ResponseFailed

from scrapy_hexshard.components.proxy_problems import (
    blame_for_error,
    blame_for_response,
    proxy_problem,
)
from scrapy_hexshard.components.worker import WorkerExtension

DEAD = "http://user:password@127.0.0.1:1"
TLS_PROXY = "https://127.0.0.1:1"
NOWHERE = "http://user:password@nowhere.invalid:3128"
TUNNELLED = "https://127.0.0.1:9/page"
Route = Callable[[str], None]


@pytest.fixture
def proxy() -> Iterator[ForwardProxy]:
    server = ForwardProxy()
    yield server
    server.close()


class Through(Never):
    """Names a proxy in its requests, if it has one."""

    own_proxy: str | None = None

    def request_for_key(self, key: str, payload: Any) -> Request:
        meta = {"proxy": self.own_proxy} if self.own_proxy else {}
        return Request(key, meta=meta, dont_filter=True)


class Page(Through):
    def parse(self, response: Any) -> Any:
        yield {"url": response.url, "meta": sorted(response.meta)}


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in the environment of this run says a thing about proxies."""
    for name in os.environ.keys() - without_proxies(os.environ):
        monkeypatch.delenv(name)


@pytest.fixture
def through(no_proxy: None, monkeypatch: pytest.MonkeyPatch) -> Route:
    """Sends all pages through a proxy, by ``PROXY_URL``."""
    return partial(monkeypatch.setenv, "PROXY_URL")


@pytest.fixture(params=WAYS)
def in_any_way(
    request: pytest.FixtureRequest, no_proxy: None, monkeypatch: pytest.MonkeyPatch
) -> Route:
    """Sends all pages through a proxy, in each of the ways there are to do so."""

    def route(url: str) -> None:
        if request.param == "meta":
            monkeypatch.setattr(Through, "own_proxy", url)
        else:
            for name in WAYS[request.param]:
                monkeypatch.setenv(name, url)

    return route


async def one(store_path: Any, key: str, spider: type[Spider] = Through, **settings: Any) -> Crawl:
    """Crawl one key to its end."""
    return await crawl(store_path, spider, [key], settings)


def faults(crawled: Crawl) -> int:
    """How many keys died of what the launcher takes for an error."""
    worker = crawled.crawler.get_extension(WorkerExtension)
    assert worker is not None
    assert worker.work is not None
    return worker.work.report()["faults"]


# The proxy.


@crawl_test
async def test_a_proxy_that_refuses_the_credentials(store_path, origin, proxy, in_any_way):
    in_any_way(proxy.wrong_url)
    crawled = await one(store_path, f"{origin}/ok")
    assert crawled.outcomes == {"proxy: 407": 1}
    assert crawled.counts == {"dead": 1}
    assert len(proxy.refused) == 1
    assert faults(crawled) == 1


@crawl_test
async def test_a_proxy_that_refuses_the_credentials_for_a_tunnel(store_path, proxy, in_any_way):
    in_any_way(proxy.wrong_url)
    crawled = await one(store_path, TUNNELLED)
    assert crawled.outcomes == {"proxy: 407": 1}
    assert crawled.stat("retry/count") == 1
    assert proxy.refused == ["127.0.0.1:9"] * 2
    assert faults(crawled) == 1


class Sitemap(Never):
    """Fetches its list while it starts; an error comes as it is, or as another's cause."""

    url = "http://shop.example/list"
    wraps = False

    async def start(self) -> Any:
        try:
            response = await self.crawler.engine.download_async(Request(self.url))
        except Exception as error:
            if self.wraps:
                raise RuntimeError("no list") from error
            raise
        yield Request(response.url)


def told(crawled: Crawl) -> str | None:
    """What the launcher is told beside the reason."""
    worker = crawled.crawler.get_extension(WorkerExtension)
    assert worker is not None
    assert worker.work is not None
    assert worker.work.ending.reason == "start_error"
    return worker.work.ending.detail


@pytest.mark.parametrize("wraps", [False, True])
@crawl_test
async def test_a_start_that_fails_for_its_proxy_says_so(store_path, through, caplog, wraps):
    through(DEAD)
    crawled = await crawl(store_path, Sitemap, wraps=wraps)
    detail = told(crawled)
    assert detail is not None
    assert detail.startswith("start() failed with ")
    assert detail.endswith(", as its proxy failed: refused")
    assert f"{detail}: the keys stored so far are crawled" in caplog.text
    assert "password" not in caplog.text


@crawl_test
async def test_a_start_that_fails_for_its_origin_does_not_blame_a_proxy(store_path, no_proxy):
    crawled = await crawl(store_path, Sitemap, url="http://127.0.0.1:1/list", wraps=True)
    assert told(crawled) == "start() failed with RuntimeError"


@pytest.mark.parametrize("status", [403, 502])
@crawl_test
async def test_a_proxy_that_refuses_a_tunnel(store_path, proxy, through, status):
    proxy.tunnel = status
    through(proxy.url)
    crawled = await one(store_path, TUNNELLED)
    assert crawled.outcomes == {f"proxy: {status}": 1}
    assert len(proxy.asked) == 2


@pytest.mark.parametrize(
    ("key", "url", "outcome"),
    [("http://127.0.0.1:9/page", DEAD, "refused"), (TUNNELLED, NOWHERE, "not found")],
)
@crawl_test
async def test_a_proxy_that_is_not_there(store_path, in_any_way, key, url, outcome):
    in_any_way(url)
    crawled = await one(store_path, key)
    assert crawled.outcomes == {f"proxy: {outcome}": 1}
    assert crawled.stat("retry/count") == 1
    assert faults(crawled) == 1


@crawl_test
async def test_a_proxy_that_does_not_speak_tls(store_path, proxy, no_proxy, monkeypatch):
    monkeypatch.setattr(Through, "own_proxy", proxy.url.replace("http:", "https:"))
    crawled = await one(store_path, "http://127.0.0.1:9/page")
    assert crawled.outcomes == {"proxy: no TLS": 1}


@pytest.mark.skipif(REACTORLESS, reason="the handler for aiohttp can do both in its way")
@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("socks5://127.0.0.1:1", "http://127.0.0.1:9"),
        pytest.param(
            TLS_PROXY,
            TUNNELLED,
            marks=pytest.mark.skipif(version_info < (2, 16), reason="Scrapy 2.15 tries"),
        ),
    ],
)
@crawl_test
async def test_a_proxy_that_the_handler_cannot_use(store_path, monkeypatch, url, key):
    monkeypatch.setattr(Through, "own_proxy", url)
    crawled = await one(store_path, key)
    assert crawled.outcomes == {"proxy: unsupported": 1}


@crawl_test
async def test_a_proxy_error_is_never_permanent(store_path, origin, proxy, through):
    through(proxy.wrong_url)
    settings = {"HEXSHARD_PERMANENT_HTTP": [407], "HEXSHARD_MAX_ATTEMPTS": 2}
    crawled = await one(store_path, f"{origin}/ok", **settings)
    assert crawled.outcomes == {"proxy: 407": 1}
    assert crawled.stat("hexshard/failed") == 1
    assert crawled.stat("hexshard/outcome/proxy: 407") == 2


# The origin behind a proxy that works.


@crawl_test
async def test_a_page_through_a_proxy_shows_nothing_of_it(store_path, origin, proxy, in_any_way):
    in_any_way(proxy.url)
    crawled = await one(store_path, f"{origin}/heals?n=1&s=503&{proxy.port}", Page)
    assert crawled.outcomes == {"done": 1}
    [item] = crawled.items
    ours = {"_auth_proxy", "_scheme_proxy", "hexshard_proxy", "proxy"}
    assert ours.isdisjoint(item["meta"]) or Through.own_proxy is not None


@pytest.mark.parametrize("status", [404, 502])
@crawl_test
async def test_an_error_page_of_the_origin(store_path, origin, proxy, through, status):
    through(proxy.url)
    crawled = await one(store_path, f"{origin}/status/{status}")
    assert crawled.outcomes == {f"http {status}": 1}


@crawl_test
async def test_an_origin_that_is_not_there_behind_a_proxy(store_path, proxy, through):
    through(proxy.url)
    crawled = await one(store_path, "http://127.0.0.1:1/")
    assert crawled.outcomes == {"http 502": 1}  # as the proxy says of it


@crawl_test
async def test_what_may_be_the_origins_as_well_stays_a_failed_download(store_path, proxy, through):
    proxy.tunnel = None
    through(proxy.url)
    crawled = await one(store_path, TUNNELLED, DOWNLOAD_TIMEOUT=1)
    [outcome] = crawled.outcomes
    assert outcome.startswith("download: ")


# No proxy at all.


@crawl_test
async def test_a_407_of_an_origin_is_a_page_like_another(store_path, origin, no_proxy):
    crawled = await one(store_path, f"{origin}/status/407")
    assert crawled.outcomes == {"http 407": 1}


@crawl_test
async def test_an_origin_that_is_not_there(store_path, no_proxy):
    crawled = await one(store_path, "http://127.0.0.1:1/")
    assert crawled.outcomes == {"download: DownloadConnectionRefusedError": 1}


@crawl_test
async def test_a_request_that_names_no_proxy_goes_directly(store_path, origin, monkeypatch):
    class Direct(Plain):
        def request_for_key(self, key, payload):
            return Request(key, meta={"proxy": None}, dont_filter=True)

    monkeypatch.setenv("PROXY_URL", DEAD)
    crawled = await one(store_path, f"{origin}/ok", Direct)
    assert crawled.outcomes == {"done": 1}


# What the spider, or a middleware, makes of it.


@crawl_test
async def test_an_errback_that_yields_handles_a_proxy_error(store_path, proxy, through):
    class Recovers(Through):
        def request_for_key(self, key, payload):
            return super().request_for_key(key, payload).replace(errback=self.errback)

        def errback(self, failure):
            yield {"error": type(failure.value).__name__}

    through(proxy.wrong_url)
    crawled = await one(store_path, "http://127.0.0.1:9/page", Recovers)
    assert crawled.outcomes == {"done": 1}
    assert crawled.items == [{"error": "HttpError"}]


@crawl_test
async def test_an_errback_that_yields_nothing_leaves_a_proxy_error(store_path, through):
    class Silent(Through):
        def request_for_key(self, key, payload):
            return super().request_for_key(key, payload).replace(errback=self.errback)

        def errback(self, failure):
            assert type(failure.value).__name__ == "DownloadConnectionRefusedError"

    through(DEAD)
    crawled = await one(store_path, "http://127.0.0.1:9/page", Silent)
    assert crawled.outcomes == {"proxy: refused": 1}


@crawl_test
async def test_a_407_the_spider_asked_for_is_a_page_like_another(store_path, proxy, through):
    class Asks(Page):
        handle_httpstatus_list = [407]  # noqa: RUF012

    through(proxy.wrong_url)
    crawled = await one(store_path, "http://127.0.0.1:9/page", Asks)
    assert crawled.outcomes == {"done": 1}


class DownloadWithin:
    """Answers with what another request came to."""

    def __init__(self, crawler: Any) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Any) -> Any:
        return cls(crawler)

    async def process_request(self, request: Any) -> Any:
        if request.meta.get("inner"):
            return None
        meta = {**request.meta, "inner": True}
        return await self.crawler.engine.download_async(Request(request.url, meta=meta))


@pytest.mark.parametrize("key", ["http://127.0.0.1:9/page", TUNNELLED])
@crawl_test
async def test_a_proxy_error_of_a_download_within_a_middleware(store_path, proxy, through, key):
    through(proxy.wrong_url)
    settings = {"DOWNLOADER_MIDDLEWARES": {DownloadWithin: 10}}
    crawled = await one(store_path, key, **settings)
    assert crawled.outcomes == {"proxy: 407": 1}


class BreakBeforeTheDownload:
    def process_request(self, request: Any) -> None:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "a database of the project")


@crawl_test
async def test_an_error_from_before_the_download_is_not_the_proxys(store_path, proxy, through):
    through(proxy.url)
    settings = {"DOWNLOADER_MIDDLEWARES": {BreakBeforeTheDownload: 800}}
    crawled = await one(store_path, "http://127.0.0.1:9/page", **settings)
    assert crawled.outcomes == {"download: ConnectionRefusedError": 1}


# Errors that no test can have at will.


def problem_with(error: Exception, proxy: str = DEAD, url: str = TUNNELLED) -> str | None:
    blame_for_error(Request(url, meta={"proxy": proxy}), error)
    return proxy_problem(error)


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("number", [errno.EHOSTUNREACH, errno.ENETUNREACH])
def test_a_proxy_to_which_no_way_leads(number: int) -> None:
    of_twisted = NoRouteError(osError=number)
    for cause in (OSError(number, "no route"), of_twisted):
        assert problem_with(raised(DownloadFailedError(), cause)) == "unreachable"


def test_a_cause_is_found_in_a_group_and_where_it_does_not_show() -> None:
    group = ExceptionGroup("all attempts failed", [ConnectionRefusedError(errno.ECONNREFUSED, "")])
    hidden = ValueError()
    hidden.__context__ = raised(OSError("attempts"), group)
    hidden.__suppress_context__ = True
    assert problem_with(raised(DownloadFailedError(), hidden)) == "refused"


def test_the_error_of_another_request_that_was_being_handled_is_no_cause() -> None:
    timeout = TimeoutError()
    timeout.__context__ = raised(CannotResolveHostError(), OSError(errno.ECONNREFUSED, ""))
    error = raised(DownloadFailedError(), timeout)
    assert problem_with(error) is None


def test_tls_with_the_origin_is_not_the_proxys() -> None:
    error = ResponseFailed([Failure(ssl.SSLError("wrong version"))])
    assert problem_with(error, url=TUNNELLED) is None
    assert problem_with(error, url="http://h/") == "no TLS"
    distrust = SSL.Error([("SSL routines", "", "certificate verify failed")])
    assert problem_with(distrust, url="http://h/") == "certificate not valid"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("[{'status': 407, 'reason': b'Proxy Authentication Required'}]", "407"),
        ("[{'status': 503, 'reason': b\"[{'status': 407\"}]", "503"),
        ("[b'220 mail.example ESMTP']", "no HTTP"),
    ],
)
def test_what_a_proxy_answered_to_a_tunnel_is_read_from_its_error(
    answer: str, problem: str
) -> None:
    error = TunnelError(f"Could not open CONNECT tunnel with proxy h:1 {answer}")
    assert problem_with(error) == problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("407 Proxy Authentication Required", "407"),
        ("Invalid username/password", "login refused"),
        ("Requested USERNAME/PASSWORD from proxy server, but got ...", "login refused"),
        ("Requested NO AUTHENTICATION REQUIRED from proxy server, but ...", "login wanted"),
        ("Proxy Server could not connect: Connection not allowed by ...", "not allowed"),
        ("Proxy Server could not connect: Connection refused.", None),
        ("Proxy Server could not connect: Host unreachable.", None),
        ("Proxy Server could not connect: General SOCKS server failure.", None),
    ],
)
@pytest.mark.parametrize("package", ["httpx", "httpx2"])
def test_what_httpx_says_of_a_proxy(package: str, text: str, problem: str | None) -> None:
    kind = type("ProxyError", (Exception,), {"__module__": package})
    error = raised(DownloadFailedError(text), kind(text))
    assert problem_with(error, "socks5://127.0.0.1:1") == problem


@pytest.mark.parametrize(
    ("url", "proxy", "problem"),
    [
        ("http://h/", DEAD, "407"),
        ("http://h/", TLS_PROXY, "407"),
        ("http://h/", "127.0.0.1:1", "407"),
        ("https://h/", DEAD, None),  # it has come through a tunnel
        ("http://h/", "socks5://127.0.0.1:1", None),
    ],
)
def test_a_407_that_only_the_origin_can_have_sent_is_not_the_proxys(
    url: str, proxy: str, problem: str | None
) -> None:
    request = Request(url, meta={"proxy": proxy})
    response = Response(url, status=407, request=request)
    blame_for_response(request, response)
    assert proxy_problem(HttpError(response)) == problem
    assert proxy_problem(HttpError(response.replace(body=b"x"))) == problem


def test_a_mark_changes_nothing_else_of_an_error() -> None:
    error = raised(DownloadFailedError("refused"), OSError(errno.ECONNREFUSED, ""))
    cause = error.__cause__
    assert problem_with(error) == "refused"
    assert type(error) is DownloadFailedError
    assert (str(error), error.args, error.__cause__) == ("refused", ("refused",), cause)
