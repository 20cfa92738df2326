"""Crawls through proxies that are not ours, by every kind of proxy and download handler."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import pytest
from scrapy import version_info
from support.certificates import self_signed
from support.forward_proxy import PageServer
from support.proxied_crawl import HANDLERS, STORE, Run, assert_no_secret

PATIENCE = 30.0
SERVER = Path(__file__).parents[1] / "support" / "proxy_server.py"
USER = "acme-zone-eu-session-78"
PASSWORD = "p@ss:w+rd%21"
USERINFO = f"{USER}:{quote(PASSWORD, safe='')}"


@dataclass
class RealProxy:
    """A proxy in a process of its own."""

    kind: str
    port: int
    log: Path

    def url(self, scheme: str | None = None, userinfo: str = USERINFO) -> str:
        return f"{scheme or self.kind}://{userinfo}@127.0.0.1:{self.port}"

    def has_carried(self, address: str) -> bool:
        """Whether something went through it to the server at *address*."""
        port = address.rpartition(":")[2]
        lines = re.compile(rf"(?: |-> )(?:127\.0\.0\.1:|\('127\.0\.0\.1', ){port}\b")
        deadline = time.monotonic() + PATIENCE
        while not lines.search(self.log.read_text()):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("tls") / "certificate.pem")


@pytest.fixture(scope="module")
def proxies(
    tmp_path_factory: pytest.TempPathFactory, certificate: Path
) -> Iterator[Callable[[str], RealProxy]]:
    """Makes a proxy of each kind when first asked for one."""
    folder = tmp_path_factory.mktemp("proxies")
    made: dict[str, RealProxy] = {}
    processes: list[subprocess.Popen[str]] = []

    def proxy(kind: str) -> RealProxy:
        if kind not in made:
            log = folder / f"{kind}.log"
            command = [sys.executable, str(SERVER), kind, f"{USER}:{PASSWORD}", str(log)]
            if kind == "https":
                command.append(str(certificate))
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            processes.append(process)
            assert process.stdout is not None
            made[kind] = RealProxy(kind, int(process.stdout.readline()), log)
        return made[kind]

    yield proxy
    for process in processes:
        process.communicate()


@pytest.fixture
def origins(certificate: Path) -> Iterator[list[PageServer]]:
    servers = [PageServer(), PageServer(certificate)]
    yield servers
    for server in servers:
        server.close()


def settings_of(handler: str) -> dict[str, object]:
    """The settings for a download handler; skips where it is not to be had."""
    if handler == "aiohttp" and version_info < (2, 19):
        pytest.skip("Scrapy before 2.19 has no handler for aiohttp")
    if handler == "httpx" and version_info < (2, 17):
        pytest.skip("Scrapy before 2.17 has no handler for SOCKS")
    if handler == "httpx" and version_info < (2, 18) and not find_spec("httpx"):
        pytest.skip("Scrapy before 2.18 wants httpx, not httpx2")
    return {**HANDLERS[handler], **STORE}


@pytest.mark.parametrize(
    ("handler", "kind", "scheme"),
    [
        ("twisted", "http", "http"),
        ("aiohttp", "http", "http"),
        ("aiohttp", "https", "https"),
        ("httpx", "http", "http"),
        ("httpx", "https", "https"),
        ("httpx", "socks5", "socks5"),
        ("httpx", "socks5", "socks5h"),
    ],
)
def test_pages_of_http_and_https_come_through_a_real_proxy_with_its_login(
    tmp_path: Path,
    proxies: Callable[[str], RealProxy],
    origins: list[PageServer],
    handler: str,
    kind: str,
    scheme: str,
) -> None:
    settings = settings_of(handler)
    proxy = proxies(kind)
    plain, tls = (origin.address for origin in origins)
    names = ["1", "moved", "busy"]
    # With a current pyOpenSSL, Scrapy 2.15 has but one page through a tunnel.
    tls_names = names if version_info >= (2, 16) else names[:1]
    urls = [f"{plain}/{name}" for name in names] + [f"{tls}/{name}" for name in tls_names]
    run = Run(tmp_path / "run").start("", ",".join(urls), proxy.url(scheme), **settings)
    text = run.end().everything()
    assert run.outcomes == {"done": len(urls)}
    assert proxy.has_carried(plain)
    assert proxy.has_carried(tls)
    assert b"DEBUG" in text
    assert_no_secret(text, proxy.url(scheme))


def test_a_proxy_over_tls_serves_http_pages_with_the_handler_of_twisted(
    tmp_path: Path, proxies: Callable[[str], RealProxy], origins: list[PageServer]
) -> None:
    if version_info < (2, 16):
        pytest.skip("Scrapy 2.15 would send the login for https pages in plain text")
    proxy = proxies("https")
    paths = f"{origins[0].address}/1,{origins[1].address}/2"
    run = Run(tmp_path / "run").start("", paths, proxy.url(), **settings_of("twisted"))
    text = run.end().everything()
    assert run.outcomes == {"done": 1, "proxy: unsupported": 1}
    assert proxy.has_carried(origins[0].address)
    assert origins[1].asked == []
    assert_no_secret(text, proxy.url())


@pytest.mark.parametrize(
    ("handler", "kind", "outcome"),
    [
        ("twisted", "http", "proxy: 407"),
        ("aiohttp", "https", "proxy: 407"),
        ("httpx", "https", "proxy: 407"),
        ("httpx", "socks5", "proxy: login refused"),
    ],
)
def test_a_real_proxy_that_refuses_the_login_has_an_outcome_of_its_own(
    tmp_path: Path,
    proxies: Callable[[str], RealProxy],
    origins: list[PageServer],
    handler: str,
    kind: str,
    outcome: str,
) -> None:
    settings = settings_of(handler)
    url = proxies(kind).url(userinfo=f"{USER}:{quote(PASSWORD, safe='')}0")
    paths = f"{origins[0].address}/1,{origins[1].address}/2"
    run = Run(tmp_path / "run").start("", paths, url, **settings)
    text = run.end().everything()
    assert run.outcomes == {outcome: 2}
    assert origins[0].asked == origins[1].asked == []
    assert_no_secret(text, url)


def test_a_socks_proxy_that_wants_a_login(
    tmp_path: Path, proxies: Callable[[str], RealProxy], origins: list[PageServer]
) -> None:
    settings = settings_of("httpx")
    url = f"socks5://127.0.0.1:{proxies('socks5').port}"
    run = Run(tmp_path / "run").start("", f"{origins[0].address}/1", url, **settings).end()
    assert run.outcomes == {"proxy: login wanted": 1}


@pytest.mark.parametrize("way", ["environment", "meta"])
def test_a_socks_proxy_that_we_did_not_set_tells_no_secret_either(
    tmp_path: Path, proxies: Callable[[str], RealProxy], origins: list[PageServer], way: str
) -> None:
    settings = settings_of("httpx")
    proxy = proxies("socks5")
    paths = f"{origins[0].address}/1,{origins[1].address}/2,http://127.0.0.1:1/"
    run = Run(tmp_path / "run").start("", paths, proxy.url(), way, **settings)
    text = run.end().everything()
    assert run.outcomes == {"done": 2, "download: DownloadFailedError": 1}
    assert proxy.has_carried(origins[1].address)
    if version_info >= (2, 18):  # before, Scrapy kept httpcore silent
        assert b"setup_socks5_connection.started" in text
    assert_no_secret(text, proxy.url())
