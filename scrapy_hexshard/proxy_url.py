"""The URL of a proxy: its rules, and everything in it that must stay secret.

A message names the variable and the rule it breaks; the value, or a part of it, is in none.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv6Address
from urllib.parse import unquote, urlsplit

from scrapy_hexshard.errors import SettingError

PROXY_VARIABLE = "PROXY_URL"
SCHEMES = ("http", "https", "socks5", "socks5h")

_BEGINNING = re.compile(r"(?:[^/:]+:(?=/)|/)*")
_CONTROL = re.compile("%(?:[01][0-9A-Fa-f]|7[Ff])")  # no protocol carries one in a login
_PORTS = {"http": 80, "https": 443}
_SOCKS_PORT = 1080
_LABEL = "[A-Za-z0-9_-]{1,63}"
_HOST = re.compile(rf"(?=.{{1,254}}\Z){_LABEL}(?:\.{_LABEL})*\.?")


@dataclass(frozen=True, slots=True)
class Proxy:
    """A valid proxy URL, and what in it must stay secret. Its repr shows neither."""

    url: str = field(repr=False)
    address: str = field(repr=False)  # the URL without its user information
    userinfo: str = field(repr=False)  # "user:password" as written, or empty

    @property
    def secrets(self) -> frozenset[str]:
        """Every text that gives the proxy or its credentials away."""
        return frozenset({self.url, *userinfo_secrets(self.userinfo)})

    @property
    def scheme(self) -> str:
        """Its scheme, in lower case."""
        return urlsplit(self.address).scheme

    @property
    def host(self) -> str:
        """Its host in lower case, an IPv6 address without its brackets."""
        return urlsplit(self.address).hostname or ""

    @property
    def port(self) -> int:
        """Its port, or the usual one of its scheme."""
        return urlsplit(self.address).port or _PORTS.get(self.scheme, _SOCKS_PORT)

    @property
    def login(self) -> tuple[str, str] | None:
        """Its user name and password, decoded; None if it has none."""
        user, _, password = self.userinfo.partition(":")
        return (unquote(user), unquote(password)) if self.userinfo else None

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for two URLs of the same proxy with the same login, however they are written."""
        return (self.scheme, self.host, self.port, self.login)

    def credentials(self, encoding: str) -> str | None:
        """Its credentials for the Basic scheme; None if it has none.

        Raises SettingError if *encoding* cannot write them.
        """
        if not self.userinfo:
            return None
        try:
            return base64.b64encode(_decoded(self.userinfo).encode(encoding)).decode()
        except (UnicodeEncodeError, LookupError):
            raise SettingError(
                f"The credentials in {PROXY_VARIABLE} cannot be written in {encoding}: set "
                "HTTPPROXY_AUTH_ENCODING to what the proxy expects, such as utf-8."
            ) from None


def parse_proxy(name: str, value: str) -> Proxy:
    """The proxy in variable *name*; raises SettingError, without a word of *value*."""
    url = value.strip()
    if broken := _broken_rule(url):
        raise SettingError(f"{name} {broken}. Its value is not shown here, as it may be secret.")
    scheme, _, authority = url.partition("://")
    userinfo, _, host = authority.rstrip("/").rpartition("@")
    return Proxy(url, f"{scheme.lower()}://{host}", userinfo)


def is_proxy_url(value: str) -> bool:
    """Whether *value* keeps all rules of a proxy URL."""
    return _broken_rule(value.strip()) is None


def own_proxy(environ: Mapping[str, str] = os.environ) -> Proxy | None:
    """The proxy of this process, named by ``PROXY_URL``; None if that is not set or empty.

    Raises SettingError if it is no proxy URL.
    """
    value = environ.get(PROXY_VARIABLE, "")
    return parse_proxy(PROXY_VARIABLE, value) if value.strip() else None


def own_secrets(environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    """What must stay secret in the ``PROXY_URL`` of this process, be it valid or not."""
    return secrets_in([environ.get(PROXY_VARIABLE, "")])


def secrets_in(values: Iterable[str]) -> frozenset[str]:
    """What must stay secret in proxy URLs of any form, valid or not."""
    found: set[str] = set()
    for value in values:
        before, at, _ = value.strip().rpartition("@")
        if at:
            found |= {value.strip()}.union(*map(userinfo_secrets, _userinfos(before)))
    return frozenset(found - set(SCHEMES))


def _userinfos(before: str) -> set[str]:
    """What may be the user information in a URL that nobody has checked, of which this is all that
    stands before the last @.

    Slashes may be missing, or part of a password, and what looks like a scheme may be a user name.
    """
    whole = _BEGINNING.sub("", before, count=1)
    rest = whole.partition(":")[2]
    return {whole, rest if ":" in rest else whole, before.rpartition("//")[2]}


def userinfo_secrets(userinfo: str) -> frozenset[str]:
    """*userinfo* (``user:password``), its parts, both decoded, and as basic credentials."""
    if not userinfo:
        return frozenset()
    user, _, password = userinfo.partition(":")
    plain = _decoded(userinfo)
    parts = {userinfo, plain, user, unquote(user), password, unquote(password)}
    # Some parsers take a slash for the end of the host, and tell what is before it. What is shown
    # is shown line by line, so that a secret with a line end in it comes in pieces.
    parts |= {piece for part in (user, password) for piece in re.split(r"[/\r\n]", unquote(part))}
    return frozenset(parts | _basic_credentials(plain) | _basic_credentials(userinfo))


def _decoded(userinfo: str) -> str:
    user, _, password = userinfo.partition(":")
    return f"{unquote(user)}:{unquote(password)}"


def _basic_credentials(pair: str) -> set[str]:
    encoded = {pair.encode(codec, "replace") for codec in ("utf-8", "latin-1")}
    return {base64.b64encode(text).decode().rstrip("=") for text in encoded}


def _broken_rule(url: str) -> str | None:
    """The rule that *url* breaks, as the end of a sentence that begins with its name."""
    scheme, separator, rest = url.partition("://")
    if not url.isprintable() or " " in url:
        return "holds a space or a control character: percent-encode it"
    if not separator:
        return "has no scheme: write http:// before the host"
    if scheme.lower() not in SCHEMES:
        return f"has a scheme other than {', '.join(SCHEMES)}"
    authority, slash, path = re.sub("[?#]", "/", rest).partition("/")
    if "@" in path:
        return "holds a /, ? or # before the @: percent-encode it (%2F, %3F, %23)"
    if slash and (path or not rest.endswith("/")):
        return "has something after the host and port: a proxy URL has no path or query"
    userinfo, at, address = authority.rpartition("@")
    return _broken_userinfo(userinfo, at) or _broken_address(address)


def _broken_userinfo(userinfo: str, at: str) -> str | None:
    user, colon, _ = userinfo.partition(":")
    if at and not user:
        return "has an @ but no user name before it"
    if at and not colon:
        return "has a user name without a password: write user:@host for an empty one"
    if _CONTROL.search(userinfo):
        return "has a control character (%00 to %1F, or %7F) in its user name or password"
    return None


def _broken_address(address: str) -> str | None:
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, colon, port = address, "", ""
    if not host:
        return "has no host"
    if not (_HOST.fullmatch(host) or _is_ipv6(host)):
        return "has an impossible host: write an IPv6 address in [brackets], other hosts in ASCII"
    if colon and not (re.fullmatch(r"[0-9]{1,5}", port) and 1 <= int(port) <= 65535):
        return "has an impossible port: it is a number from 1 to 65535"
    return None


def _is_ipv6(host: str) -> bool:
    if not re.fullmatch(r"\[[0-9A-Fa-f:.]+\]", host):
        return False
    try:
        IPv6Address(host[1:-1])
    except AddressValueError:
        return False
    return True
