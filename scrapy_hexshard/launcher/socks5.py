"""The words of a SOCKS5 client: RFC 1928, with user names and passwords as in RFC 1929."""

from __future__ import annotations

import socket
from ipaddress import ip_address

_NO_LOGIN, _LOGIN, _NONE_OF_THEM = 0x00, 0x02, 0xFF
_REPLIES = {
    2: "not allowed",
    3: "site unreachable",
    4: "site unreachable",
    5: "site refused",
    6: "site unreachable",
}


class SocksError(Exception):
    """The proxy said no, or spoke another protocol. The text says it in a few words."""


def greet(connection: socket.socket, login: tuple[str, str] | None) -> None:
    """Agree on how to log in, and do so. RFC 1928, section 3."""
    methods = [_NO_LOGIN, _LOGIN] if login else [_NO_LOGIN]
    connection.sendall(bytes([5, len(methods), *methods]))
    version, method = _receive(connection, 2)
    if version != 5:
        raise SocksError("no SOCKS5")
    if method == _NONE_OF_THEM:
        raise SocksError("login refused" if login else "login wanted")
    if method == _LOGIN and login:
        _log_in(connection, *login)
    elif method != _NO_LOGIN:
        raise SocksError("no SOCKS5")


def connect(connection: socket.socket, host: str, port: int) -> None:
    """Have the proxy connect to *host*, whose name it looks up. RFC 1928, sections 4 to 6."""
    connection.sendall(b"\x05\x01\x00" + _address(host) + port.to_bytes(2, "big"))
    version, reply, _, kind = _receive(connection, 4)
    if version != 5:
        raise SocksError("no SOCKS5")
    if reply != 0:
        raise SocksError(_REPLIES.get(reply, "SOCKS failure"))
    length = {1: 4, 4: 16}.get(kind) or _receive(connection, 1)[0]
    _receive(connection, length + 2)


def _log_in(connection: socket.socket, user: str, password: str) -> None:
    """RFC 1929, section 2."""
    parts = [user.encode(), password.encode()]
    if max(map(len, parts)) > 255:
        raise SocksError("login too long for SOCKS5")
    connection.sendall(b"\x01" + b"".join(bytes([len(part)]) + part for part in parts))
    _, status = _receive(connection, 2)
    if status != 0:
        raise SocksError("login refused")


def _address(host: str) -> bytes:
    try:
        address = ip_address(host)
    except ValueError:
        name = host.encode("ascii")
        return b"\x03" + bytes([len(name)]) + name
    return (b"\x01" if address.version == 4 else b"\x04") + address.packed


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionResetError
        data += more
    return data
