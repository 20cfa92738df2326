"""Every proxy is tried before anything starts, if asked."""

from __future__ import annotations

import base64
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from support.checked_proxy import (
    HttpProxy,
    Listener,
    Silence,
    Site,
    SocksProxy,
    Talker,
    closed_port,
    make_certificate,
)

from scrapy_hexshard.cli import main
from scrapy_hexshard.errors import SettingError
from scrapy_hexshard.launcher import proxy_check
from scrapy_hexshard.launcher.proxy_check import NO_SITE, Target, check_proxies, parse_target
from scrapy_hexshard.proxy_url import parse_proxy

LOGIN = ("acme-session-7", "hush@hush:pä")
SECRETS = ("acme", "hush", "YWNtZS1z", "127.0.0.1", "localhost")


@pytest.fixture
def serve() -> Iterator[Callable[..., Listener]]:
    """Start a listener, which is closed in the end."""
    started: list[Listener] = []

    def start(listener: Listener) -> Listener:
        started.append(listener)
        return listener

    yield start
    for each in started:
        each.close()


@pytest.fixture
def site(serve) -> Site:
    return serve(Site())


def tried(*urls: str, target: Target = NO_SITE) -> list[str]:
    """What is said of each proxy, without the time it took."""
    lines: list[str] = []
    proxies = {shard: parse_proxy("PROXY_URL_0", url) for shard, url in enumerate(urls)}
    failed = check_proxies(proxies, target, lines.append)
    said = dict(line.split(": ", 1) for line in lines)
    assert len(lines) == len(urls)
    assert failed == [n for n in proxies if "answers" not in said[f"shard {n}"]]
    assert not [secret for secret in SECRETS if any(secret in line for line in lines)]
    return [said[f"shard {shard}"].partition(" (")[0] for shard in proxies]


# Without a site.


@pytest.mark.parametrize("kind", [HttpProxy, SocksProxy])
@pytest.mark.parametrize("login", [None, LOGIN])
def test_a_proxy_that_takes_the_credentials_answers(serve, kind, login):
    proxy = serve(kind(login))
    assert tried(proxy.url) == ["proxy answers"]
    # No site is asked for: there is none of that name, and SOCKS needs none.
    seen = {HttpProxy: ["HEAD http://proxy-check.invalid/"], SocksProxy: ["login"][: bool(login)]}
    assert proxy.asked == seen[kind]


@pytest.mark.parametrize(
    ("kind", "refused", "wanted"),
    [(HttpProxy, "407", "407"), (SocksProxy, "login refused", "login wanted")],
)
def test_a_proxy_that_does_not_take_the_credentials_is_told_apart(serve, kind, refused, wanted):
    proxy = serve(kind(LOGIN))
    wrong = f"{proxy.scheme}://acme:hushhush@127.0.0.1:{proxy.port}"
    without = f"{proxy.scheme}://127.0.0.1:{proxy.port}"
    assert tried(proxy.url, wrong, without) == [
        "proxy answers",
        f"proxy: {refused}",
        f"proxy: {wanted}",
    ]


def test_a_login_that_socks_cannot_carry_is_told(serve):
    proxy = serve(SocksProxy(LOGIN))
    url = f"socks5://acme:{'hush' * 64}@127.0.0.1:{proxy.port}"
    assert tried(url) == ["proxy: login too long for SOCKS5"]


@pytest.mark.parametrize(
    ("scheme", "answer", "says"),
    [
        ("http", b"HTTP/1.1 200 OK\r\n\r\n", "proxy answers"),
        ("http", b"HTTP/1.1 302 Found\r\n\r\n", "proxy answers"),
        ("http", b"HTTP/1.0 503 Busy\r\n\r\n", "proxy answers"),
        ("http", b"HTTP/1.1 407 Who?\r\n\r\n", "proxy: 407"),
        ("http", b"SSH-2.0-x\r\n", "proxy: no HTTP"),
        ("http", b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000, "proxy: no HTTP"),
        ("http", b"", "proxy: closed"),
        ("https", b"HTTP/1.1 400 Bad Request\r\n\r\n", "proxy: no TLS"),
        ("socks5", b"", "proxy: closed"),
        ("socks5", b"HTTP/1.1 400 Bad Request\r\n\r\n", "proxy: no SOCKS5"),
        ("socks5", b"\x05\x00", "proxy answers"),
        ("socks5", b"\x05\x01", "proxy: no SOCKS5"),
        ("socks5", b"\x05\x02", "proxy: closed"),
        ("socks5", b"\x05", "proxy: closed"),
    ],
)
def test_whatever_a_proxy_answers_is_told_in_a_few_words(serve, scheme, answer, says):
    talker = serve(Talker(answer, scheme))
    assert tried(f"{scheme}://acme:hushhush@127.0.0.1:{talker.port}") == [says]


def test_a_port_where_nobody_listens_is_refused():
    assert tried(f"http://127.0.0.1:{closed_port()}") == ["proxy: refused"]


def test_a_host_that_nobody_knows_is_not_found(monkeypatch):
    def look_up(host: str, *arguments: object, **more: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, f"{host} not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert tried("http://acme:hushhush@localhost:1") == ["proxy: not found"]


def test_a_proxy_that_says_nothing_takes_no_longer_than_the_timeout(serve, monkeypatch):
    monkeypatch.setattr(proxy_check, "TIMEOUT_SECONDS", 0.5)
    silence = Silence()
    good = serve(HttpProxy())
    assert tried(silence.url, good.url) == ["proxy: timeout", "proxy answers"]
    silence.close()


def test_a_search_for_a_name_that_does_not_end_is_not_waited_for(monkeypatch):
    over = threading.Event()

    def look_up(*arguments: object, **more: object) -> None:
        over.wait()
        raise socket.gaierror

    monkeypatch.setattr(proxy_check, "TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert tried("http://localhost:1", "http://localhost:2") == ["proxy: timeout"] * 2
    over.set()


def test_the_same_proxy_is_tried_once_however_it_is_written(serve):
    proxy = serve(HttpProxy(("acme", "hush")))
    authority = f"127.0.0.1:{proxy.port}"
    urls = [f"http://acme:hush@{authority}", f"HTTP://acm%65:hush@{authority}/"]
    assert tried(*urls, f"http://other:hush@{authority}") == [*["proxy answers"] * 2, "proxy: 407"]
    assert len(proxy.asked) == 2


class Busy(Talker):
    """Notes how many conversations it has had at a time."""

    def __init__(self) -> None:
        super().__init__(b"HTTP/1.1 407 Who?\r\n\r\n")
        self.most = self.now = 0
        self.lock = threading.Lock()

    def talk(self, rfile, wfile, connection):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.05)
        with self.lock:
            self.now -= 1
        super().talk(rfile, wfile, connection)


def test_a_few_are_tried_at_a_time(serve, monkeypatch):
    monkeypatch.setattr(proxy_check, "MAX_AT_ONCE", 3)
    proxy = serve(Busy())
    urls = [f"http://acme:hush{number}@127.0.0.1:{proxy.port}" for number in range(10)]
    assert tried(*urls) == ["proxy: 407"] * 10
    assert 1 < proxy.most <= 3


# Over TLS.


@pytest.mark.parametrize(
    ("address", "trusted", "says"),
    [
        ("127.0.0.1", True, "proxy answers"),
        ("127.0.0.1", False, "proxy: certificate not valid"),
        ("127.0.0.2", True, "proxy: certificate not valid"),
    ],
)
def test_the_certificate_of_a_proxy_is_verified(
    serve, tmp_path, monkeypatch, address, trusted, says
):
    context, file = make_certificate(tmp_path, address)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
    proxy = serve(HttpProxy(LOGIN, context))
    assert proxy.url.startswith("https://")
    assert tried(proxy.url) == [says]
    assert len(proxy.asked) == (says == "proxy answers")


# With a site.


@pytest.mark.parametrize("kind", [HttpProxy, SocksProxy])
@pytest.mark.parametrize(
    ("path", "says"), [("", "proxy answers"), ("/302", "proxy answers"), ("/404", "proxy: 404")]
)
def test_a_page_is_asked_for_through_the_proxy(serve, site, kind, path, says):
    proxy = serve(kind(LOGIN))
    assert tried(proxy.url, target=parse_target(f"{site.url}{path}")) == [says]
    assert site.asked == [f"HEAD {path or '/'}"]


@pytest.mark.parametrize("kind", [HttpProxy, SocksProxy])
def test_for_an_https_page_its_site_is_connected_to(serve, site, kind):
    proxy = serve(kind(LOGIN))
    target = parse_target(f"https://127.0.0.1:{site.port}/404")
    assert tried(proxy.url, target=target) == ["proxy answers"]
    assert proxy.asked[-1].endswith(f"127.0.0.1:{site.port}")
    assert site.asked == []


@pytest.mark.parametrize(("kind", "says"), [(HttpProxy, "502"), (SocksProxy, "site refused")])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_site_that_the_proxy_cannot_reach_is_a_failure(serve, kind, says, scheme):
    proxy = serve(kind(LOGIN))
    target = parse_target(f"{scheme}://localhost:{closed_port()}/")
    assert tried(proxy.url, target=target) == [f"proxy: {says}"]


@pytest.mark.parametrize("reply", range(1, 10))
def test_every_socks_reply_but_a_yes_is_a_failure(serve, reply):
    talker = serve(Talker(b"\x05\x00\x05" + bytes([reply]) + b"\x00\x01" + bytes(6), "socks5"))
    (said,) = tried(f"socks5://127.0.0.1:{talker.port}", target=parse_target("http://[::1]/"))
    assert said in {
        "proxy: not allowed",
        "proxy: site unreachable",
        "proxy: site refused",
        "proxy: SOCKS failure",
    }


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://shop.example", Target("http", "shop.example", 80, "/")),
        ("HTTPS://Shop.Example/p?q=1#top", Target("https", "shop.example", 443, "/p?q=1")),
        ("http://[::1]:8080?q", Target("http", "::1", 8080, "/?q")),
    ],
)
def test_the_page_is_read_from_its_url(url, target):
    assert parse_target(url) == target


@pytest.mark.parametrize(
    "url",
    [
        "hushhush",
        "hushhush.example/p",
        "ftp://hushhush.example/",
        "http://acme:hushhush@proxy.example:1",
        "socks5://hushhush:1",
        "http://hushhush:0/",
        "http://hushhush:99999/",
        "http://[hushhush]/",
        "http://hushhush/a b",
        "http://hushhush/ä",
        "http://hushhush/\n",
        "http:///hushhush",
        f"http://{'hush' * 70}/",
    ],
)
def test_a_page_that_is_none_is_refused_without_showing_it(url):
    with pytest.raises(SettingError, match=r"^The page of --check-proxies ") as caught:
        parse_target(url)
    assert "hush" not in str(caught.value)


# The option.


def test_nothing_starts_if_a_proxy_fails(launch, serve, tmp_path):
    proxy = serve(HttpProxy(LOGIN))
    environ = {
        "PROXY_URL_0": proxy.url,
        "PROXY_URL_1": f"http://acme:hushhush@127.0.0.1:{proxy.port}",
        "PROXY_URL_3": f"http://acme:hushhush@127.0.0.1:{closed_port()}",
    }
    touch = ("touch", f"{tmp_path}/{{shard}}")
    run = launch("--shards", "5", "--check-proxies", "--", *touch, environ=environ)
    assert run.end() == 1
    notices, said = run.text.splitlines()[:-4], sorted(run.text.splitlines()[-4:])
    assert "hexdigest-shard: Without a proxy: shards 2, 4." in notices
    assert said[0] == "hexdigest-shard: Nothing was started, as a proxy failed: shards 1, 3."
    assert said[1].startswith("hexdigest-shard: shard 0: proxy answers (0.")
    assert said[2:] == [
        "hexdigest-shard: shard 1: proxy: 407",
        "hexdigest-shard: shard 3: proxy: refused",
    ]
    assert not list(tmp_path.iterdir())


def test_the_workers_start_once_all_proxies_have_answered(launch, serve, site, tmp_path):
    proxies = [serve(HttpProxy(LOGIN)), serve(SocksProxy(LOGIN))]
    environ = {f"PROXY_URL_{shard}": proxy.url for shard, proxy in enumerate(proxies)}
    touch = ("touch", f"{tmp_path}/{{shard}}")
    run = launch("--shards", "2", "--check-proxies", site.url, "--", *touch, environ=environ)
    assert run.end() == 0
    assert site.asked == ["HEAD /"] * 2
    assert run.text.count("proxy answers") == 2
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(("works", "code"), [(True, 0), (False, 1)])
def test_a_dry_run_may_try_the_proxies_too(serve, monkeypatch, capsys, works, code):
    proxy = serve(HttpProxy(LOGIN))
    good, bad = proxy.url, f"http://127.0.0.1:{closed_port()}"
    monkeypatch.setenv("PROXY_URL_0", good if works else bad)
    assert main(["run", "--shards", "1", "--check-proxies", "--dry-run", "--", "true"]) == code
    captured = capsys.readouterr()
    assert (captured.out == "[0] CRAWL_SHARD=0 CRAWL_SHARDS=1 PROXY_URL=<set> true\n") is works
    assert ("proxy answers" in captured.err) is works


def test_a_proxy_that_is_inherited_is_tried_too(serve, monkeypatch, capsys):
    monkeypatch.setenv("PROXY_URL", f"http://127.0.0.1:{closed_port()}")
    words = ["run", "--shards", "2", "--check-proxies", "--dry-run"]
    assert main([*words, "--inherit-proxy", "--", "true"]) == 1
    assert "as a proxy failed: shards 0-1." in capsys.readouterr().err
    assert main([*words, "--", "true"]) == 0
    assert "No shard has a proxy to try." in capsys.readouterr().err


@pytest.mark.parametrize("page", ["http://acme:hushhush@proxy.example:1", ""])
def test_a_page_that_is_none_is_a_usage_error(monkeypatch, capsys, page):
    assert main(["run", "--shards", "1", "--check-proxies", page, "--", "true"]) == 2
    assert "hush" not in capsys.readouterr().err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_signal_ends_the_check_at_once(launch, tmp_path, number, code, dry):
    silence = Silence()
    environ = {"PROXY_URL_0": silence.url}
    touch = ("touch", f"{tmp_path}/{{shard}}")
    run = launch("--shards", "1", "--check-proxies", *dry, "--", *touch, environ=environ)
    with silence.wait():
        run.signal(number)
        assert run.end() == code
    assert run.text == f"hexdigest-shard: {number.name}: nothing was started.\n"
    assert not list(tmp_path.iterdir())
    silence.close()


@pytest.mark.parametrize(
    ("status", "says"),
    [(200, "answers"), (204, "answers"), (302, ": 302"), (407, ": 407"), (101, ": 101")],
)
def test_no_status_but_2xx_opens_a_tunnel(serve, status, says):
    talker = serve(Talker(f"HTTP/1.1 {status} X\r\n\r\n".encode()))
    target = parse_target("https://shop.example/")
    assert tried(talker.url, target=target)[0].replace("proxy ", "proxy").endswith(says)


class Pedant(HttpProxy):
    """Takes the credentials in one encoding alone."""

    def __init__(self, encoding: str) -> None:
        super().__init__(("acme", "h\u00fcsh\u00fcsh"))
        self.encoding = encoding

    def _answer(self, method, target, given):
        pair = ":".join(self.login).encode(self.encoding)
        return 200 if given == f"Basic {base64.b64encode(pair).decode()}" else 407


@pytest.mark.parametrize(
    ("encoding", "asked", "says"),
    [
        ("latin-1", 1, ", login in Latin-1)"),
        ("utf-8", 2, ', login in UTF-8, which HTTPPROXY_AUTH_ENCODING = "utf-8" has Scrapy send)'),
        ("utf-16", 2, "proxy: 407"),
    ],
)
def test_the_encoding_in_which_a_login_is_taken_is_told(serve, encoding, asked, says):
    proxy = serve(Pedant(encoding))
    lines: list[str] = []
    check_proxies({0: parse_proxy("X", proxy.url)}, NO_SITE, lines.append)
    assert lines[0].endswith(says)
    assert len(proxy.asked) == asked
