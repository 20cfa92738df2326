"""Each worker behind its own proxy, and the credentials nowhere but on the wire to it."""

from __future__ import annotations

import base64
import logging
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import Message
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from scrapy import Request
from scrapy.exceptions import NotConfigured
from scrapy.http import Response
from scrapy.utils.test import get_crawler

from scrapy_hexshard.components.proxy_middleware import ProxyMiddleware
from scrapy_hexshard.components.secret_filter import SecretFilter
from scrapy_hexshard.errors import SettingError

PROJECT = Path(__file__).parents[2]
USER = "acme-zone-eu-session-77"
PASSWORD = "p@ss:wörd!1"
USERINFO = f"{USER}:{quote(PASSWORD, safe='')}"
AUTHORIZATION = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode("latin-1")).decode()


class Server(ThreadingHTTPServer):
    """A server on loopback, in threads of its own, which notes what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def port(self) -> int:
        return self.server_port

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def answer(self, method: str, target: str, headers: Message) -> tuple[int, dict[str, str]]:
        """The status and the headers of the answer."""
        raise NotImplementedError


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        status, headers = self.server.answer(self.command, self.path, self.headers)
        body = f"<p>{self.path}</p>".encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_CONNECT = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Stay silent."""


class Origin(Server):
    """Pages of HTML, a redirect, and one that is busy when first asked for."""

    def answer(self, method: str, target: str, headers: Message) -> tuple[int, dict[str, str]]:
        leaked = headers.get("Proxy-Authorization", "")
        self.asked.append(f"{headers.get('Via', 'direct')} {method} {target}{leaked}")
        if target.endswith("/moved"):
            return 302, {"Location": f"{target}-here"}
        if target.endswith("/busy") and self.asked.count(self.asked[-1]) == 1:
            return 503, {}
        return 200, {"Content-Type": "text/html"}


class Proxy(Server):
    """An authenticating forward proxy with a name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.refused: list[str] = []

    @property
    def url(self) -> str:
        return f"http://{USERINFO}@127.0.0.1:{self.port}"

    def answer(self, method: str, target: str, headers: Message) -> tuple[int, dict[str, str]]:
        if headers["Proxy-Authorization"] != AUTHORIZATION:
            self.refused.append(target)
            return 407, {}
        self.asked.append(f"{method} {target}")
        if method == "CONNECT":
            return 502, {}
        url = urlsplit(target)
        onward = HTTPConnection(url.netloc, timeout=60)
        onward.request(method, url.path, headers={"Via": self.name})
        answer = onward.getresponse()
        answer.read()
        onward.close()
        kept = ("Location", "Content-Type")
        return answer.status, {k: v for k, v in answer.getheaders() if k in kept}


@pytest.fixture
def origin() -> Iterator[Origin]:
    server = Origin()
    yield server
    server.close()


@pytest.fixture
def proxies() -> Iterator[list[Proxy]]:
    servers = [Proxy("proxy-0"), Proxy("proxy-1")]
    yield servers
    for server in servers:
        server.close()


SPIDER = '''
import os, traceback
import scrapy
from scrapy.exceptions import CloseSpider

class PagesSpider(scrapy.Spider):
    name = "pages"

    async def start(self):
        for path in self.paths.split(","):
            yield scrapy.Request(self.base + path, self.parse, errback=self.failed)

    def tell(self, what, request):
        """Show all that a careless spider could."""
        print(what, request.url, request.headers, request.meta, request.to_dict(spider=self))
        self.logger.debug("%s %r %r", what, request.headers, request.meta)
        open(self.tale, "a").write(repr(request.to_dict(spider=self)))

    def parse(self, response):
        self.tell("page", response.request)
        self.logger.info("%s", response.meta)
        yield {"url": response.url, "meta": dict(response.meta)}
        if response.url.endswith("/last"):
            raise CloseSpider("enough")

    def failed(self, failure):
        self.tell("failure", failure.request)
        self.logger.error(f"{failure.value!r} {failure.getTraceback()}", exc_info=True)
'''


@dataclass
class Run:
    """A crawl in a process of its own, and everything it may have written."""

    folder: Path
    process: subprocess.Popen[bytes] = field(init=False)
    output: bytes = b""

    def start(self, base: str, paths: str, proxy: str | None, **settings: Any) -> Run:
        self.folder.mkdir()
        (self.folder / "spider.py").write_text(SPIDER)
        options = {
            "HTTPCACHE_ENABLED": "1",
            "HTTPCACHE_IGNORE_HTTP_CODES": "503",
            "HTTPCACHE_DIR": self.folder / "cache",
            "FEEDS": '{"items.jsonl": {"format": "jsonlines"}}',
            "DOWNLOADER_MIDDLEWARES": (
                '{"scrapy_hexshard.components.proxy_middleware.ProxyMiddleware": 950}'
            ),
            "RETRY_TIMES": "1",
            "DOWNLOAD_TIMEOUT": "30",
            **settings,
        }
        arguments = [f"{name}={value}" for name, value in options.items()]
        environ = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        environ["PYTHONPATH"] = str(PROJECT)
        environ.pop("PROXY_URL", None)
        if proxy is not None:
            environ["PROXY_URL"] = proxy
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "scrapy", "runspider", "spider.py"),
                *(part for argument in arguments for part in ("-s", argument)),
                *("-a", f"base={base}", "-a", f"paths={paths}", "-a", "tale=tale.txt"),
            ],
            cwd=self.folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        return self

    def listed(self) -> bytes:
        """What ``ps`` shows of it while it runs."""
        return subprocess.check_output(["ps", "-ww", "-o", "args=", "-p", str(self.process.pid)])

    def end(self) -> Run:
        self.output, _ = self.process.communicate(timeout=120)
        return self

    def everything(self) -> bytes:
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        files.remove(self.folder / "spider.py")
        return self.output + b"\n".join(path.read_bytes() for path in files)


def assert_no_secret(text: bytes, url: str) -> None:
    userinfo = url.partition("://")[2].rpartition("@")[0]
    written = userinfo.partition(":")[2]
    pairs = [f"{USER}:{PASSWORD}", userinfo]
    encoded = [pair.encode(codec) for pair in pairs for codec in ("latin-1", "utf-8")]
    secrets = {url, userinfo, USER, written, PASSWORD, repr(PASSWORD)[1:-1], ascii(PASSWORD)[1:-1]}
    found = [
        secret
        for secret in {
            *(secret.encode(codec) for secret in secrets for codec in ("latin-1", "utf-8")),
            *(base64.b64encode(pair).rstrip(b"=") for pair in encoded),
        }
        if secret in text
    ]
    assert not found
    assert b"Proxy-Authorization" not in text


def pages(shard: int) -> str:
    return ",".join(f"/{shard}/{page}" for page in ("1", "2", "moved", "busy"))


def expected(shard: int, via: str) -> list[str]:
    names = ("1", "2", "moved", "moved-here", "busy", "busy")
    return sorted(f"{via} GET /{shard}/{name}" for name in names)


REACTORLESS = {"TWISTED_REACTOR_ENABLED": "0"}


def has_reactorless_downloads() -> bool:
    pytest.importorskip("aiohttp")
    pytest.importorskip("scrapy.core.downloader.handlers._aiohttp")
    return True


@pytest.mark.parametrize("settings", [{}, REACTORLESS], ids=["asyncio", "reactorless"])
def test_each_shard_goes_through_its_own_proxy_and_shows_no_secret(
    tmp_path: Path, origin: Origin, proxies: list[Proxy], settings: dict[str, str]
) -> None:
    if settings:
        has_reactorless_downloads()
    base = f"http://127.0.0.1:{origin.port}"
    urls = [proxies[0].url, proxies[1].url, None]
    runs = [
        Run(tmp_path / f"{shard}").start(base, pages(shard), url, **settings)
        for shard, url in enumerate(urls)
    ]
    listed = [run.listed() for run in runs]
    texts = [run.end().everything() for run in runs]

    asked = [sorted(line for line in origin.asked if f" /{shard}/" in line) for shard in range(3)]
    assert asked == [expected(0, "proxy-0"), expected(1, "proxy-1"), expected(2, "direct")]
    assert [len(proxy.asked) for proxy in proxies] == [6, 6]
    assert not proxies[0].refused + proxies[1].refused
    for run, text, line in zip(runs, texts, listed, strict=True):
        assert run.process.returncode == 0
        assert text.count(b"page http") == 4
        assert b"'item_scraped_count': 4" in text
        assert (run.folder / "cache").exists()
        assert_no_secret(text + line, proxies[0].url)


@pytest.mark.parametrize("settings", [{}, REACTORLESS], ids=["asyncio", "reactorless"])
def test_a_dead_proxy_fails_the_page_without_a_secret_and_without_a_detour(
    tmp_path: Path, origin: Origin, proxies: list[Proxy], settings: dict[str, str]
) -> None:
    if settings:
        has_reactorless_downloads()
    url = proxies[0].url
    proxies.pop(0).close()
    run = Run(tmp_path / "run").start(f"http://127.0.0.1:{origin.port}", "/1", url, **settings)
    text = run.end().everything()
    assert b"Gave up retrying" in text
    assert b"failure http" in text
    assert origin.asked == []
    assert_no_secret(text, url)


def test_a_proxy_that_refuses_the_credentials_is_not_bypassed(
    tmp_path: Path, origin: Origin, proxies: list[Proxy]
) -> None:
    wrong = proxies[0].url.replace(USER, f"{USER}0")
    run = Run(tmp_path / "run").start(f"http://127.0.0.1:{origin.port}", "/1", wrong)
    text = run.end().everything()
    assert proxies[0].refused == [f"http://127.0.0.1:{origin.port}/1"]
    assert b"Crawled (407)" in text
    assert origin.asked == []
    assert_no_secret(text, wrong)


def test_a_tunnel_is_asked_for_with_the_credentials(tmp_path: Path, proxies: list[Proxy]) -> None:
    run = Run(tmp_path / "run").start("https://127.0.0.1:9", "/1", proxies[0].url)
    text = run.end().everything()
    assert proxies[0].asked == ["CONNECT 127.0.0.1:9"] * 2  # the page and its retry
    assert b"TunnelError" in text
    assert_no_secret(text, proxies[0].url)


def test_a_request_left_in_the_queue_on_disk_holds_no_secret(
    tmp_path: Path, origin: Origin, proxies: list[Proxy]
) -> None:
    run = Run(tmp_path / "run").start(
        f"http://127.0.0.1:{origin.port}",
        ",".join(["/busy", "/last", *(f"/more/{page}" for page in range(20))]),
        proxies[0].url,
        JOBDIR="job",
        RETRY_PRIORITY_ADJUST="-10",
        CONCURRENT_REQUESTS="1",
    )
    text = run.end().everything()
    files = [path for path in run.folder.glob("job/requests.queue/**/*") if path.is_file()]
    queued = b"".join(path.read_bytes() for path in files)
    assert b"/busy" in queued
    assert_no_secret(text, proxies[0].url)


def test_an_invalid_proxy_ends_the_crawl_with_a_sentence(tmp_path: Path, origin: Origin) -> None:
    url = "alice:s3cretword@127.0.0.1:1"
    run = Run(tmp_path / "run").start(f"http://127.0.0.1:{origin.port}", "/1", url)
    text = run.end().everything()
    assert b"CRITICAL: PROXY_URL has no scheme" in text
    assert b"Traceback" not in text
    assert b"alice" not in text
    assert b"s3cretword" not in text
    assert origin.asked == []


class TestMiddleware:
    @pytest.fixture
    def middleware(self, monkeypatch: pytest.MonkeyPatch) -> ProxyMiddleware:
        monkeypatch.setenv(
            "PROXY_URL", f"http://{USER}:{quote(PASSWORD, safe='')}@proxy.example:3128/"
        )
        return ProxyMiddleware.from_crawler(get_crawler())

    def test_a_request_has_the_proxy_only_while_it_is_downloaded(
        self, middleware: ProxyMiddleware
    ) -> None:
        request = Request("http://h/", meta={"kept": 1}, headers={"X": "kept"})
        before = request.to_dict()
        for _ in range(2):
            middleware.process_request(request)
            assert request.meta["proxy"] == "http://proxy.example:3128"
            assert request.headers["Proxy-Authorization"] == AUTHORIZATION.encode()
            response = Response("http://h/")
            assert middleware.process_response(request, response) is response
            assert request.to_dict() == before

            middleware.process_request(request)
            middleware.process_exception(request, OSError())
            assert request.to_dict() == before

    @pytest.mark.parametrize("own", ["http://other.example:1", "http://proxy.example:3128", None])
    def test_a_request_with_its_own_proxy_keeps_it(
        self, middleware: ProxyMiddleware, own: str | None
    ) -> None:
        request = Request("http://h/", meta={"proxy": own}, headers={"Proxy-Authorization": "own"})
        before = request.to_dict()
        middleware.process_request(request)
        assert request.to_dict() == before
        middleware.process_response(request, Response("http://h/"))
        middleware.process_exception(request, OSError())
        assert request.to_dict() == before

    def test_a_copy_made_during_the_download_is_given_it_anew(
        self, middleware: ProxyMiddleware
    ) -> None:
        request = Request("http://h/")
        middleware.process_request(request)
        copy = request.replace(url="http://h/2", headers={})
        middleware.process_request(copy)
        assert copy.headers["Proxy-Authorization"] == AUTHORIZATION.encode()
        middleware.process_response(copy, Response("http://h/2"))
        assert copy.meta == {}
        assert copy.headers == {}

    @pytest.mark.parametrize("secret", [USER, PASSWORD, USERINFO, AUTHORIZATION[6:].rstrip("=")])
    def test_an_error_that_tells_a_secret_is_silenced(
        self, middleware: ProxyMiddleware, secret: str
    ) -> None:
        cause = ValueError(f"http://{secret}@proxy.example:3128")
        error = ValueError(111, f"Cannot reach http://{secret}@proxy.example:3128")
        error.__cause__ = cause
        request = Request("http://h/")
        middleware.process_request(request)
        middleware.process_exception(request, error)
        assert error.args == (111, "Cannot reach http://***@proxy.example:3128")
        assert secret not in "".join(traceback.format_exception(error))

    def test_any_other_error_stays_as_it_is(self, middleware: ProxyMiddleware) -> None:
        cause = ValueError("why")
        error = OSError(111, "Cannot reach http://proxy.example:3128")
        error.__cause__ = cause
        request = Request("http://h/")
        middleware.process_request(request)
        middleware.process_exception(request, error)
        assert error.args == (111, "Cannot reach http://proxy.example:3128")
        assert error.__cause__ is cause

    def test_it_wins_over_a_proxy_that_scrapy_took_from_the_environment(
        self, middleware: ProxyMiddleware
    ) -> None:
        meta = {"proxy": "http://ambient:1", "_auth_proxy": "http://ambient:1", "_scheme_proxy": 1}
        request = Request("http://h/", meta=meta, headers={"Proxy-Authorization": "ambient"})
        middleware.process_request(request)
        assert request.meta["proxy"] == "http://proxy.example:3128"
        assert request.headers.getlist("Proxy-Authorization") == [AUTHORIZATION.encode()]
        middleware.process_response(request, Response("http://h/"))
        assert request.meta == {}
        assert request.headers == {}

    def test_a_proxy_without_credentials_gets_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PROXY_URL", "socks5://[::1]:1080")
        middleware = ProxyMiddleware.from_crawler(get_crawler())
        meta = {"proxy": "http://ambient:1", "_scheme_proxy": True}
        request = Request("http://h/", meta=meta, headers={"Proxy-Authorization": "ambient"})
        middleware.process_request(request)
        assert request.meta["proxy"] == "socks5://[::1]:1080"
        assert request.headers == {}

    @pytest.mark.parametrize("value", [None, "", "  "])
    def test_without_a_proxy_it_is_not_there(
        self, monkeypatch: pytest.MonkeyPatch, value: str | None
    ) -> None:
        monkeypatch.delenv("PROXY_URL", raising=False)
        if value is not None:
            monkeypatch.setenv("PROXY_URL", value)
        with pytest.raises(NotConfigured):
            ProxyMiddleware.from_crawler(get_crawler())

    def test_credentials_are_written_in_the_encoding_of_the_settings(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PROXY_URL", "http://alice:wörd%E2%82%AC@h:1")
        crawler = get_crawler(settings_dict={"HTTPPROXY_AUTH_ENCODING": "utf-8"})
        request = Request("http://h/")
        ProxyMiddleware.from_crawler(crawler).process_request(request)
        token = base64.b64encode("alice:wörd€".encode())
        assert request.headers["Proxy-Authorization"] == b"Basic " + token
        with pytest.raises(SettingError, match="HTTPPROXY_AUTH_ENCODING") as caught:
            ProxyMiddleware.from_crawler(get_crawler())
        assert "alice" not in str(caught.value)
        assert caught.value.__suppress_context__


class Shown(logging.Handler):
    """Keeps each record as its formatter writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


class TestSecretFilter:
    @pytest.fixture
    def shown(self) -> Shown:
        secret_filter = SecretFilter()
        secret_filter.add(frozenset({"hunter22"}))
        secret_filter.add(frozenset({"p@ss w"}))
        handler = Shown()
        handler.addFilter(secret_filter)
        return handler

    @pytest.fixture
    def logger(self, shown: Shown) -> Iterator[logging.Logger]:
        logger = logging.getLogger("test_secret_filter")
        logger.propagate = False
        logger.addHandler(shown)
        yield logger
        logger.removeHandler(shown)

    def test_it_hides_in_the_message_and_its_arguments(
        self, logger: logging.Logger, shown: Shown
    ) -> None:
        logger.error("a hunter22 b")
        logger.error("a %s %d", "hunter22", 7)
        logger.error("a %(x)r", {"x": ["hunter22", "p%40ss+w"]})
        logger.error("100%")
        logger.error("100%% %s", "fine")
        assert shown.lines == ["a *** b", "a *** 7", "a ['***', '***']", "100%", "100% fine"]

    def test_it_hides_in_tracebacks_and_stacks(self, logger: logging.Logger, shown: Shown) -> None:
        def failing(value: str) -> None:
            raise ValueError(f"not a proxy: {value}")

        try:
            failing("hunter" + "22")
        except ValueError:
            logger.exception("failed")
        assert "hunter22" not in shown.lines[0]
        assert shown.lines[0].endswith("ValueError: not a proxy: ***")
        logger.error("here hunter22", stack_info=True)
        assert "Stack (most recent call last)" in shown.lines[1]
        assert "hunter22" not in shown.lines[1]

    def test_a_traceback_without_a_secret_is_left_to_the_formatter(
        self, logger: logging.Logger, shown: Shown
    ) -> None:
        class Terse(logging.Formatter):
            def formatException(self, ei: Any) -> str:  # noqa: N802
                return f"<{ei[0].__name__}>"

        shown.setFormatter(Terse())
        try:
            int("x")
        except ValueError:
            logger.exception("failed")
        assert shown.lines == ["failed\n<ValueError>"]

    def test_a_mistake_in_the_format_is_shown_without_the_secret(
        self, logger: logging.Logger, shown: Shown
    ) -> None:
        logger.error("%d pages %s", "hunter22")  # noqa: PLE1206
        assert shown.lines == ["%d pages %s % ('***',)"]
