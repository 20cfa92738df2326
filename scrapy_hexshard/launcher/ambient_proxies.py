"""Variables that set a proxy for any program, from which Scrapy takes it without being asked."""

from __future__ import annotations

import re
from collections.abc import Mapping

from scrapy_hexshard.proxy_url import PROXY_VARIABLE

_AMBIENT = re.compile(r"(?:https?|ftp|all|socks[45]?h?|wss?)_proxy", re.IGNORECASE)
_SCHEME = re.compile(r"[^/:]+:(?=/)")


def ambient_names(environ: Mapping[str, str]) -> list[str]:
    """The variables for the proxy of any program, such as ``HTTPS_PROXY`` or ``PROXY_URL``."""
    return sorted(name for name in environ if name == PROXY_VARIABLE or _AMBIENT.fullmatch(name))


def proxied_schemes(environ: Mapping[str, str]) -> frozenset[str]:
    """For which of http and https pages Scrapy finds a proxy, reading as urllib does.

    It knows ``ALL_PROXY`` and the like, too, but has no pages for them.
    """
    schemes = {_scheme_of(name) for name in proxy_names(environ) if environ[name]}
    if "REQUEST_METHOD" in environ:  # a CGI script, where HTTP_PROXY is the client's header
        schemes.discard("http")
    for name in (each for each in environ if each.endswith("_proxy")):
        if environ[name]:
            schemes.add(_scheme_of(name))
        else:
            schemes.discard(_scheme_of(name))
    return frozenset(schemes & {"http", "https"})


def _scheme_of(name: str) -> str:
    return name.lower().removesuffix("_proxy")


def proxy_names(environ: Mapping[str, str]) -> list[str]:
    """All in which a program may find one: urllib, and so Scrapy, looks at any ``..._proxy``."""
    return sorted(name for name in environ if name.lower().endswith("_proxy"))


def crashing_names(environ: Mapping[str, str]) -> list[str]:
    """The variables with a user name but no password, on which Scrapy fails.

    Its HttpProxyMiddleware parses them all, whatever their name, and raises a TypeError.
    """
    return [name for name in proxy_names(environ) if _has_user_alone(environ[name])]


def _has_user_alone(value: str) -> bool:
    """Whether urllib reads *value* as one with a user name, and None for the password."""
    if scheme := _SCHEME.match(value):
        value = value[scheme.end() :]
    if value.startswith("/"):
        if not value.startswith("//"):
            return False  # no proxy at all: Scrapy passes over it
        end = value.find("/", max(2, value.find("@")))
        value = value[2 : end if end >= 0 else None]
    userinfo, at, _ = value.rpartition("@")
    return bool(at and userinfo) and ":" not in userinfo
