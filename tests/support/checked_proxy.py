"""Proxies that check credentials, and a site behind them: real protocols, on loopback."""

from __future__ import annotations

import base64
import datetime as dt
import socket
import socketserver
import ssl
import threading
from contextlib import suppress
from http.client import HTTPConnection, parse_headers
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

Login = tuple[str, str]


class _Conversation(socketserver.StreamRequestHandler):
    server: Listener

    def setup(self) -> None:
        if self.server.tls:
            self.request = self.server.tls.wrap_socket(self.request, server_side=True)
        super().setup()

    def handle(self) -> None:
        self.server.talk(self.rfile, self.wfile, self.request)

    def finish(self) -> None:
        super().finish()
        self.request.close()


class Listener(socketserver.ThreadingTCPServer):
    """Listens on a free port until it is closed, and notes what it was asked."""

    daemon_threads = True
    scheme = "http"

    def __init__(self, login: Login | None = None, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.login = login
        self.tls = tls
        self.asked: list[str] = []
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def port(self) -> int:
        port: int = self.server_address[1]
        return port

    @property
    def url(self) -> str:
        """Its address with the right credentials."""
        userinfo = ":".join(quote(part, safe="") for part in self.login) + "@" if self.login else ""
        return f"{self.scheme}{'s' if self.tls else ''}://{userinfo}127.0.0.1:{self.port}"

    def talk(self, rfile: Any, wfile: Any, connection: socket.socket) -> None:
        """One conversation."""
        raise NotImplementedError

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent: a client that hangs up is part of the tests."""

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class Site(Listener):
    """Answers ``/404`` with 404, and so on."""

    def talk(self, rfile: Any, wfile: Any, connection: socket.socket) -> None:
        method, path, _ = rfile.readline().decode().split()
        parse_headers(rfile)
        self.asked.append(f"{method} {path}")
        wfile.write(_head(int(path.strip("/") or "200")))


class HttpProxy(Listener):
    """Forwards over HTTP and opens tunnels."""

    def talk(self, rfile: Any, wfile: Any, connection: socket.socket) -> None:
        method, target, _ = rfile.readline().decode().split()
        given = parse_headers(rfile).get("Proxy-Authorization")
        self.asked.append(f"{method} {target}")
        wfile.write(_head(self._answer(method, target, given)))

    def _answer(self, method: str, target: str, given: str | None) -> int:
        if self.login:
            pair = ":".join(self.login).encode("latin-1")
            if given != f"Basic {base64.b64encode(pair).decode()}":
                return 407
        url = urlsplit(f"//{target}" if method == "CONNECT" else target)
        if (url.hostname or "").endswith(".invalid"):
            return 502
        onward = HTTPConnection(url.hostname or "", url.port, timeout=30)
        try:
            onward.connect()
            if method == "CONNECT":
                return 200
            onward.request(method, url.path)
            return onward.getresponse().status
        except OSError:
            return 502
        finally:
            onward.close()


class SocksProxy(Listener):
    """RFC 1928 and RFC 1929, as far as a client that connects needs them."""

    scheme = "socks5h"

    def talk(self, rfile: Any, wfile: Any, connection: socket.socket) -> None:
        _, count = rfile.read(2)
        methods = rfile.read(count)
        method = 2 if self.login else 0
        if method not in methods:
            wfile.write(b"\x05\xff")
            return
        wfile.write(bytes([5, method]))
        if self.login and not self._log_in(rfile, wfile):
            return
        self._connect(rfile, wfile, connection)

    def _log_in(self, rfile: Any, wfile: Any) -> bool:
        rfile.read(1)
        user, password = (rfile.read(rfile.read(1)[0]).decode() for _ in range(2))
        right = (user, password) == self.login
        self.asked.append("login")
        wfile.write(bytes([1, 0 if right else 1]))
        return right

    def _connect(self, rfile: Any, wfile: Any, connection: socket.socket) -> None:
        _, _, _, kind = rfile.read(4)
        if kind == 1:
            host = str(IPv4Address(rfile.read(4)))
        else:
            host = rfile.read(rfile.read(1)[0]).decode()
        port = int.from_bytes(rfile.read(2), "big")
        self.asked.append(f"{host}:{port}")
        try:
            onward = socket.create_connection((host, port), 30)
        except ConnectionRefusedError:
            wfile.write(b"\x05\x05\x00\x01" + bytes(6))
            return
        with onward:
            wfile.write(b"\x05\x00\x00\x03\x01x" + bytes(2))
            back = threading.Thread(target=_relay, args=(onward, connection))
            back.start()
            _relay(connection, onward)
            back.join()


class Talker(Listener):
    """Says what it is told to, whatever it is asked, and no more."""

    def __init__(self, answer: bytes, scheme: str = "http") -> None:
        self.answer = answer
        self.scheme = scheme
        super().__init__()

    def talk(self, rfile: Any, wfile: Any, connection: socket.socket) -> None:
        connection.recv(65_536)
        wfile.write(self.answer)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65_536):
            pass


class Silence:
    """Takes connections, and never says a word."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://user:hushhush@127.0.0.1:{self._socket.getsockname()[1]}"

    def wait(self) -> socket.socket:
        """Wait for somebody to connect."""
        self._socket.settimeout(60)
        return self._socket.accept()[0]

    def close(self) -> None:
        self._socket.close()


def closed_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def make_certificate(folder: Path, *addresses: str) -> tuple[ssl.SSLContext, Path]:
    """A server's context with a certificate of its own for *addresses*, and the file it is in."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a proxy")])
    names = [x509.IPAddress(IPv4Address(address)) for address in addresses]
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file, key_file = folder / "proxy.pem", folder / "proxy.key"
    file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key_file)
    return context, file


def _head(status: int) -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()


def _relay(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
