"""Each worker behind its own proxy, and the credentials nowhere but on the wire to it."""

from __future__ import annotations

import base64
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from scrapy import Request
from scrapy.downloadermiddlewares.httpproxy import HttpProxyMiddleware
from scrapy.http import Response
from scrapy.utils.test import get_crawler
from support.forward_proxy import (
    AUTHORIZATION,
    PASSWORD,
    USER,
    USERINFO,
    ForwardProxy,
    PageServer,
)
from support.proxied_crawl import HANDLERS, STORE, Run, assert_no_secret

from scrapy_hexshard.components.proxy_middleware import ProxyMiddleware
from scrapy_hexshard.components.secret_filter import SecretFilter
from scrapy_hexshard.errors import SettingError


@pytest.fixture
def origin() -> Iterator[PageServer]:
    server = PageServer()
    yield server
    server.close()


@pytest.fixture
def proxies() -> Iterator[list[ForwardProxy]]:
    servers = [ForwardProxy("proxy-0"), ForwardProxy("proxy-1")]
    yield servers
    for server in servers:
        server.close()


def pages(shard: int) -> str:
    return ",".join(f"/{shard}/{page}" for page in ("1", "2", "moved", "busy"))


def expected(shard: int, via: str) -> list[str]:
    names = ("1", "2", "moved", "moved-here", "busy", "busy")
    return sorted(f"{via} GET /{shard}/{name}" for name in names)


@pytest.fixture(params=["twisted", "aiohttp"])
def handler(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The settings of a download handler."""
    if request.param == "aiohttp":
        pytest.importorskip("aiohttp", reason="Scrapy before 2.19 has no handler for aiohttp")
    return HANDLERS[request.param]


def test_each_shard_goes_through_its_own_proxy_and_shows_no_secret(
    tmp_path: Path, origin: PageServer, proxies: list[ForwardProxy], handler: dict[str, Any]
) -> None:
    base = origin.address
    urls = [proxies[0].url, proxies[1].url, None]
    runs = [
        Run(tmp_path / f"{shard}").start(base, pages(shard), url, **handler)
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


def test_a_proxy_that_refuses_the_credentials_is_not_bypassed(
    tmp_path: Path, origin: PageServer, proxies: list[ForwardProxy]
) -> None:
    wrong = proxies[0].wrong_url
    run = Run(tmp_path / "run").start(origin.address, "/1", wrong)
    text = run.end().everything()
    assert proxies[0].refused == [f"{origin.address}/1"]
    assert b"Crawled (407)" in text
    assert origin.asked == []
    assert_no_secret(text, wrong)


@pytest.mark.parametrize(
    ("way", "handler"),
    [
        ("PROXY_URL", "twisted"),
        ("PROXY_URL", "aiohttp"),
        ("environment", "aiohttp"),
        ("meta", "twisted"),
    ],
    indirect=["handler"],
)
def test_a_broken_proxy_has_its_own_outcomes_no_secret_in_any_output_and_no_detour(
    tmp_path: Path,
    origin: PageServer,
    proxies: list[ForwardProxy],
    handler: dict[str, Any],
    way: str,
) -> None:
    dead = proxies[1].url
    proxies.pop(1).close()
    wrong = proxies[0].wrong_url
    paths = "/1,https://127.0.0.1:9/2"
    runs = [
        Run(tmp_path / name).start(origin.address, paths, url, way, **handler, **STORE)
        for name, url in [("wrong", wrong), ("dead", dead)]
    ]
    texts = [run.end().everything() for run in runs]
    assert [run.outcomes for run in runs] == [{"proxy: 407": 2}, {"proxy: refused": 2}]
    assert origin.asked == []
    for text, url in zip(texts, (wrong, dead), strict=True):
        assert text.count(b"failure http") == 2
        assert b"Gave up retrying" in text
        assert_no_secret(text, url)


def test_a_proxy_from_the_environment_shows_no_secret_and_survives_retries_and_redirects(
    tmp_path: Path, origin: PageServer, proxies: list[ForwardProxy], handler: dict[str, Any]
) -> None:
    run = Run(tmp_path / "run").start(
        origin.address, pages(0), proxies[0].url, "environment", **handler, **STORE
    )
    text = run.end().everything()
    assert sorted(origin.asked) == expected(0, "proxy-0")
    assert not proxies[0].refused
    assert run.outcomes == {"done": 4}
    assert (run.folder / "cache").exists()
    assert_no_secret(text, proxies[0].url)


def test_a_proxy_that_a_request_names_wins_and_is_given_none_of_our_credentials(
    tmp_path: Path, origin: PageServer, proxies: list[ForwardProxy]
) -> None:
    proxies[1].authorizations = {None}
    run = Run(tmp_path / "run").start(
        origin.address,
        f"{pages(0)},https://127.0.0.1:9/5",
        proxies[0].url,
        **STORE,
        own=f"http://127.0.0.1:{proxies[1].port}",
    )
    text = run.end().everything()
    assert sorted(origin.asked) == expected(0, "proxy-1")
    assert proxies[1].refused == []
    assert proxies[0].asked == proxies[0].refused == []
    assert run.outcomes == {"done": 4, "proxy: 502": 1}
    assert_no_secret(text, proxies[0].url)


@pytest.mark.parametrize(
    ("url", "outcome"),
    [
        (f"http://{USER}@127.0.0.1:1", "proxy: invalid url"),  # Scrapy raises a TypeError
        (f"http:/{USERINFO}@127.0.0.1:1", "proxy: invalid url"),  # its error tells the URL
        (f"http://{USERINFO}@127.0.0.1:99999", "proxy: invalid url"),
        (f"socks5://{USERINFO}@127.0.0.1:1", "proxy: unsupported"),
        (f"{USERINFO}@127.0.0.1:1", "proxy: refused"),  # Scrapy takes it for an HTTP proxy
    ],
)
def test_a_bad_proxy_that_a_request_names_fails_its_key_without_a_secret(
    tmp_path: Path, origin: PageServer, url: str, outcome: str
) -> None:
    run = Run(tmp_path / "run").start(origin.address, "/1", url, "meta", **STORE)
    text = run.end().everything()
    assert run.outcomes == {outcome: 1}
    assert origin.asked == []
    assert_no_secret(text, url)


def test_a_tunnel_is_asked_for_with_the_credentials(
    tmp_path: Path, proxies: list[ForwardProxy]
) -> None:
    run = Run(tmp_path / "run").start("https://127.0.0.1:9", "/1", proxies[0].url)
    text = run.end().everything()
    assert proxies[0].asked == ["CONNECT 127.0.0.1:9"] * 2  # the page and its retry
    assert b"TunnelError" in text
    assert_no_secret(text, proxies[0].url)


def test_a_request_left_in_the_queue_on_disk_holds_no_secret(
    tmp_path: Path, origin: PageServer, proxies: list[ForwardProxy]
) -> None:
    run = Run(tmp_path / "run").start(
        origin.address,
        ",".join(["/jammed", "/last", *(f"/more/{page}" for page in range(20))]),
        proxies[0].url,
        JOBDIR="job",
        RETRY_PRIORITY_ADJUST="-10",
        RETRY_TIMES="10000",
        CONCURRENT_REQUESTS="1",
    )
    text = run.end().everything()
    files = [path for path in run.folder.glob("job/requests.queue/**/*") if path.is_file()]
    queued = b"".join(path.read_bytes() for path in files)
    assert b"/jammed" in queued
    assert_no_secret(text, proxies[0].url)


def test_an_invalid_proxy_ends_the_crawl_with_a_sentence(
    tmp_path: Path, origin: PageServer
) -> None:
    url = "alice:s3cretword@127.0.0.1:1"
    run = Run(tmp_path / "run").start(origin.address, "/1", url)
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

    def test_an_error_with_a_secret_in_the_repr_of_its_cause_is_silenced(
        self, middleware: ProxyMiddleware
    ) -> None:
        class QuietError(ValueError):
            def __str__(self) -> str:
                return "quiet"

        error = OSError("failed")
        error.__cause__ = QuietError(f"http://{USERINFO}@proxy.example:3128")
        request = Request("http://h/")
        middleware.process_request(request)
        middleware.process_exception(request, error)
        assert error.__cause__ is None

    @pytest.mark.parametrize("codec", ["utf-8", "latin-1"])
    def test_an_error_that_tells_a_secret_of_a_proxy_that_the_request_names_is_silenced(
        self, middleware: ProxyMiddleware, codec: str
    ) -> None:
        token = base64.b64encode("other-user:o/wörd".encode(codec)).decode()
        request = Request(
            "http://h/",
            meta={"proxy": "http://other.example:1"},
            headers={"Proxy-Authorization": f"Basic {token}"},
        )
        middleware.process_request(request)
        told = ["other-user", quote("o/wörd", safe=""), "o/wörd", "wörd", token.rstrip("="), USER]
        for secret in told:
            error = ValueError(f"no {secret}!")
            middleware.process_exception(request, error)
            assert error.args in {("no ***!",), ("no ***=!",)}

    def test_an_error_that_tells_the_url_a_request_names_is_silenced(
        self, middleware: ProxyMiddleware
    ) -> None:
        url = "http:/other-user:0ther-w0rd@other.example"
        error = ValueError(f"proxy URL with no authority: {url!r}")
        middleware.process_exception(Request("http://h/", meta={"proxy": url}), error)
        assert error.args == ("proxy URL with no authority: '***'",)

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
        monkeypatch.setenv("PROXY_URL", "http://[::1]:1080")
        middleware = ProxyMiddleware.from_crawler(get_crawler())
        meta = {"proxy": "http://ambient:1", "_scheme_proxy": True}
        request = Request("http://h/", meta=meta, headers={"Proxy-Authorization": "ambient"})
        middleware.process_request(request)
        assert request.meta["proxy"] == "http://[::1]:1080"
        assert request.headers == {}

    @pytest.mark.parametrize("outcome", ["response", "error"])
    def test_a_proxy_from_the_environment_is_taken_off_a_request_as_ours_is(
        self, monkeypatch: pytest.MonkeyPatch, outcome: str
    ) -> None:
        monkeypatch.delenv("PROXY_URL", raising=False)
        monkeypatch.setenv("http_proxy", f"http://{USERINFO}@proxy.example:3128")
        middleware = ProxyMiddleware.from_crawler(get_crawler())
        request = Request("http://h/", meta={"kept": 1})
        before = request.to_dict()
        HttpProxyMiddleware("latin-1").process_request(request)
        assert request.headers["Proxy-Authorization"] == AUTHORIZATION.encode()
        middleware.process_request(request)
        assert request.meta["proxy"] == "http://proxy.example:3128"
        assert request.headers["Proxy-Authorization"] == AUTHORIZATION.encode()
        if outcome == "response":
            middleware.process_response(request, Response("http://h/"))
        else:
            error = OSError(f"cannot reach {USERINFO}@proxy.example")
            middleware.process_exception(request, error)
            assert error.args == ("cannot reach ***@proxy.example",)
        assert request.to_dict() == before

    def test_the_log_hides_what_is_secret_in_a_proxy_from_the_environment(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handler = Shown()
        monkeypatch.setattr(logging.root, "handlers", [handler])
        monkeypatch.setenv("https_proxy", "http://ambient-user:ambient-word@proxy.example:3128")
        ProxyMiddleware.from_crawler(get_crawler())
        handler.handle(logging.makeLogRecord({"msg": "it is ambient-word of ambient-user"}))
        assert handler.lines == ["it is *** of ***"]

    @pytest.mark.parametrize("value", [None, "", "  "])
    def test_without_a_proxy_nothing_changes(
        self, monkeypatch: pytest.MonkeyPatch, value: str | None
    ) -> None:
        monkeypatch.delenv("PROXY_URL", raising=False)
        if value is not None:
            monkeypatch.setenv("PROXY_URL", value)
        middleware = ProxyMiddleware.from_crawler(get_crawler())
        request = Request("http://h/", headers={"Proxy-Authorization": "own"})
        before = request.to_dict()
        error = ConnectionRefusedError(111, "refused")
        middleware.process_request(request)
        middleware.process_response(request, Response("http://h/", status=407))
        middleware.process_exception(request, error)
        assert request.to_dict() == before
        assert vars(error) == {}

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

    @pytest.mark.parametrize("package", ["httpcore", "httpcore2"])
    @pytest.mark.parametrize("after", ["", " timeouts={'read': 5}"])
    def test_it_hides_the_login_that_httpcore_tells_of_any_socks_proxy(
        self, package: str, after: str
    ) -> None:
        handler = Shown()
        handler.addFilter(SecretFilter())
        told = "started host='h' port=1 auth=(b'not ours', b'\\n (un)known ')"
        record = logging.LogRecord(
            f"{package}.socks", logging.DEBUG, "", 0, told + after, None, None
        )
        handler.handle(record)
        assert handler.lines == [f"started host='h' port=1 auth=***{after}"]
