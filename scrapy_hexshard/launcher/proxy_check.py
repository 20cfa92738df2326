"""Tries the proxy of each shard before anything starts, and tells no host and no secret."""

from __future__ import annotations

import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from queue import Empty, SimpleQueue
from urllib.parse import urlsplit

from scrapy_hexshard.errors import SettingError
from scrapy_hexshard.launcher import socks5
from scrapy_hexshard.launcher.threads import start_thread
from scrapy_hexshard.proxy_url import Proxy

TIMEOUT_SECONDS = 10.0
MAX_AT_ONCE = 32

_LOOK_SECONDS = 0.1  # between two looks whether to go on
_USER_AGENT = "hexdigest-shard"


@dataclass(frozen=True, slots=True)
class Target:
    """A page to ask for through a proxy, or a site to connect to if its scheme is https."""

    scheme: str
    host: str
    port: int
    path: str = "/"

    @property
    def authority(self) -> str:
        """Host and port, as in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


# No site at all: in no network is there one of this name (RFC 6761). What a proxy answers, it
# answers itself, and that is 407 if it does not take the credentials.
NO_SITE = Target("http", "proxy-check.invalid", 80)


def parse_target(url: str) -> Target:
    """The target that *url* names; raises SettingError, without a word of it."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise SettingError("The page of --check-proxies is not a valid URL.") from None
    if "@" in parts.netloc:
        raise SettingError("The page of --check-proxies has a user name: name a page, no proxy.")
    if parts.scheme not in {"http", "https"} or not 0 < len(host) <= 253 or port == 0:
        raise SettingError("The page of --check-proxies must be an http:// or https:// URL.")
    if not (url.isascii() and url.isprintable()) or " " in url:
        raise SettingError("The page of --check-proxies holds a character to be percent-encoded.")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, host, port or (443 if parts.scheme == "https" else 80), path)


@dataclass(frozen=True, slots=True)
class Answer:
    """How a try went: why it failed, if it did, and how many seconds it took."""

    failure: str | None
    seconds: float
    remark: str = ""

    def __str__(self) -> str:
        if self.failure:
            return f"proxy: {self.failure}"
        return f"proxy answers ({self.seconds:.2f} s{self.remark})"


def check_proxies(
    proxies: Mapping[int, Proxy],
    target: Target,
    say: Callable[[str], None],
    is_stopped: Callable[[], object] = bool,
) -> list[int]:
    """Try them all, say a line for each shard as soon as it is known, and return those that failed.

    One proxy of several shards is tried once. Once *is_stopped* nobody is waited for. Raises
    LaunchError if the system gives no thread to try one in.
    """
    users: dict[object, list[int]] = {}
    for shard, proxy in proxies.items():
        users.setdefault(proxy.identity, []).append(shard)
    groups = list(users.values())
    failed = []
    tried = [proxies[shards[0]] for shards in groups]
    for place, answer in _try_all(tried, target, is_stopped):
        for shard in groups[place]:
            say(f"shard {shard}: {answer}")
        failed += groups[place] if answer.failure else []
    return sorted(failed)


def _try_all(
    proxies: Sequence[Proxy], target: Target, is_stopped: Callable[[], object]
) -> Iterator[tuple[int, Answer]]:
    """The places in *proxies*, with the answers as they come."""
    answers: SimpleQueue[tuple[int, Answer]] = SimpleQueue()
    waiting = deque(range(len(proxies)))
    deadlines: dict[int, float] = {}
    while (waiting or deadlines) and not is_stopped():
        while waiting and len(deadlines) < MAX_AT_ONCE:
            place = waiting.popleft()
            deadlines[place] = time.monotonic() + TIMEOUT_SECONDS
            # A daemon, as nothing can end the search for a name: nobody waits for it after Ctrl-C.
            job = (proxies[place], target, place, answers)
            start_thread(_answer, *job, name=f"hexshard-proxy-{place}")
        first = min(deadlines, key=deadlines.__getitem__)
        left = deadlines[first] - time.monotonic()
        try:
            place, answer = answers.get(timeout=max(0.0, min(left, _LOOK_SECONDS)))
        except Empty:
            if left > _LOOK_SECONDS:
                continue
            place, answer = first, Answer("timeout", TIMEOUT_SECONDS)
        if deadlines.pop(place, None) is not None:
            yield place, answer


def _answer(
    proxy: Proxy, target: Target, place: int, answers: SimpleQueue[tuple[int, Answer]]
) -> None:
    began = time.monotonic()
    failure, remark = None, ""
    try:
        for encoding in _encodings(proxy):
            with closing(_connect(proxy)) as connection:
                status = _ask(connection, proxy, target, encoding)
            remark = _said_of(encoding)
            if status != 407:
                break
        failure = None if _will_do(status, target) else str(status)
    except socks5.SocksError as error:
        failure = str(error)
    except (OSError, HTTPException, UnicodeError) as error:
        failure = _reason(error)
    answers.put((place, Answer(failure, time.monotonic() - began, remark)))


def _will_do(status: int, target: Target) -> bool:
    # A 407 is the proxy's; all other answers mean that it works, if there is no site to reach.
    if target is NO_SITE:
        return status != 407
    # No status but 2xx opens a tunnel (RFC 9110, section 9.3.6).
    return 200 <= status < (300 if target.scheme == "https" else 400)


def _encodings(proxy: Proxy) -> list[str]:
    """In which to send the credentials, one after the other: first as Scrapy does by default."""
    plain = "".join(proxy.login or ())
    if plain.isascii() or proxy.scheme.startswith("socks"):
        return ["ascii"]
    try:
        plain.encode("latin-1")
    except UnicodeEncodeError:
        return ["utf-8"]
    return ["latin-1", "utf-8"]


def _said_of(encoding: str) -> str:
    return {
        "latin-1": ", login in Latin-1",
        "utf-8": ', login in UTF-8, which HTTPPROXY_AUTH_ENCODING = "utf-8" has Scrapy send',
    }.get(encoding, "")


_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (TimeoutError, "timeout"),
    (ConnectionRefusedError, "refused"),
    (socket.gaierror, "not found"),
    (UnicodeError, "not found"),
    (ssl.SSLCertVerificationError, "certificate not valid"),
    (ssl.SSLError, "no TLS"),
    (ConnectionError, "closed"),
    (HTTPException, "no HTTP"),
)


def _reason(error: Exception) -> str:
    """Why it failed, in words of ours: those of the error may tell the host."""
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), "unreachable")


def _connect(proxy: Proxy) -> socket.socket:
    connection = socket.create_connection((proxy.host, proxy.port), TIMEOUT_SECONDS)
    if proxy.scheme != "https":
        return connection
    try:
        return ssl.create_default_context().wrap_socket(connection, server_hostname=proxy.host)
    except BaseException:
        connection.close()
        raise


def _ask(connection: socket.socket, proxy: Proxy, target: Target, encoding: str) -> int:
    """The status of the answer; 200 where the protocol has none."""
    if not proxy.scheme.startswith("socks"):
        return _ask_http_proxy(connection, target, proxy.credentials(encoding))
    socks5.greet(connection, proxy.login)
    if target is not NO_SITE:
        socks5.connect(connection, target.host, target.port)
        if target.scheme == "http":
            return _status(connection, target, "HEAD", target.path)
    return 200


def _ask_http_proxy(connection: socket.socket, target: Target, credentials: str | None) -> int:
    if target.scheme == "https":
        return _status(connection, target, "CONNECT", target.authority, credentials)
    url = f"http://{target.authority.removesuffix(':80')}{target.path}"
    return _status(connection, target, "HEAD", url, credentials)


def _status(
    connection: socket.socket,
    target: Target,
    method: str,
    what: str,
    credentials: str | None = None,
) -> int:
    http = HTTPConnection(target.host, target.port)
    http.sock = connection
    headers = {"User-Agent": _USER_AGENT}
    if credentials:
        headers["Proxy-Authorization"] = f"Basic {credentials}"
    http.request(method, what, headers=headers)
    with closing(http.getresponse()) as response:
        return response.status
