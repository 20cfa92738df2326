"""A plain HTTP origin and a forward proxy in threads of the test, which note what they were asked.

The proxy is real enough to forward pages of http; it refuses every tunnel. See proxy_server.py for
proxies that are not ours.
"""

from __future__ import annotations

import base64
import ssl
import threading
from email.message import Message
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

USER = "acme-zone-eu-session-77"
PASSWORD = "p@ss:wörd!1"
USERINFO = f"{USER}:{quote(PASSWORD, safe='')}"
AUTHORIZATION = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode("latin-1")).decode()
IN_UTF8 = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()  # as by httpx


class Server(ThreadingHTTPServer):
    """A server on loopback, in threads of its own, which notes what it was asked."""

    daemon_threads = True

    def __init__(self, certificate: Path | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.scheme = "https" if certificate else "http"
        if certificate:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.asked: list[str] = []
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def port(self) -> int:
        return self.server_port

    @property
    def address(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def close(self) -> None:
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
            self.server_close()

    def answer(
        self, method: str, target: str, headers: Message
    ) -> tuple[int, dict[str, str]] | None:
        """The status and the headers of the answer; None to hang up without one."""
        raise NotImplementedError


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        answered = self.server.answer(self.command, self.path, self.headers)
        if answered is None:
            return
        status, headers = answered
        body = f"<p>{self.path}</p>".encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_CONNECT = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Stay silent."""


class PageServer(Server):
    """Pages of HTML, a redirect, and those that are busy at first, or always."""

    def answer(self, method: str, target: str, headers: Message) -> tuple[int, dict[str, str]]:
        leaked = headers.get("Proxy-Authorization", "")
        self.asked.append(f"{headers.get('Via', 'direct')} {method} {target}{leaked}")
        if target.endswith("/moved"):
            return 302, {"Location": f"{target}-here"}
        if target.endswith("/busy") and self.asked.count(self.asked[-1]) == 1:
            return 503, {}
        if target.endswith("/jammed"):
            return 503, {}
        return 200, {"Content-Type": "text/html"}


class ForwardProxy(Server):
    """An authenticating forward proxy with a name."""

    def __init__(self, name: str = "proxy") -> None:
        super().__init__()
        self.name = name
        self.refused: list[str] = []
        self.authorizations: set[str | None] = {AUTHORIZATION, IN_UTF8}  # None: it takes none
        self.tunnel: int | None = 502  # the status it refuses tunnels with; None hangs up

    @property
    def url(self) -> str:
        return f"http://{USERINFO}@127.0.0.1:{self.port}"

    @property
    def wrong_url(self) -> str:
        """Its URL with credentials that it refuses."""
        return self.url.replace(USER, f"{USER}0")

    def answer(
        self, method: str, target: str, headers: Message
    ) -> tuple[int, dict[str, str]] | None:
        if headers["Proxy-Authorization"] not in self.authorizations:
            self.refused.append(target)
            return 407, {}
        self.asked.append(f"{method} {target}")
        if method == "CONNECT":
            return None if self.tunnel is None else (self.tunnel, {})
        return self._forward(method, urlsplit(target))

    def _forward(self, method: str, url: Any) -> tuple[int, dict[str, str]] | None:
        onward = HTTPConnection(url.netloc, timeout=60)
        try:
            target = f"{url.path}?{url.query}" if url.query else url.path
            onward.request(method, target, headers={"Via": self.name})
            answer = onward.getresponse()
            answer.read()
        except ConnectionError:
            return 502, {}
        finally:
            onward.close()
        kept = ("Location", "Content-Type")
        return answer.status, {k: v for k, v in answer.getheaders() if k in kept}
