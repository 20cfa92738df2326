"""Which variables carry the proxy of which shard: ``PROXY_URL_<shard>``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from scrapy_hexshard.proxy_url import PROXY_VARIABLE, Proxy, parse_proxy

_OF_SHARD = re.compile(rf"{PROXY_VARIABLE}_(0|[1-9][0-9]*)")
# The variables from which urllib, and so Scrapy, takes a proxy without being asked.
_AMBIENT = re.compile(r"(?:https?|ftp|all|socks[45]?h?|wss?)_proxy", re.IGNORECASE)


def read_proxies(environ: Mapping[str, str], shards: int) -> dict[int, Proxy]:
    """The proxies of shards 0 to *shards* - 1 that have one; an empty variable counts as none.

    Raises SettingError, naming the variable and the rule, for a value that is no proxy URL.
    """
    return {
        shard: parse_proxy(name, environ[name])
        for shard in range(shards)
        if environ.get(name := f"{PROXY_VARIABLE}_{shard}", "").strip()
    }


def unused_names(environ: Mapping[str, str], shards: int) -> list[str]:
    """The ``PROXY_URL_...`` variables that belong to none of the *shards*."""
    return sorted(
        name
        for name in environ
        if name.startswith(f"{PROXY_VARIABLE}_")
        and not ((match := _OF_SHARD.fullmatch(name)) and int(match[1]) < shards)
    )


def ambient_names(environ: Mapping[str, str]) -> list[str]:
    """The variables that set a proxy for any program, such as ``HTTPS_PROXY`` or ``PROXY_URL``."""
    return sorted(name for name in environ if name == PROXY_VARIABLE or _AMBIENT.fullmatch(name))


def is_shard_variable(name: str) -> bool:
    """Whether *name* carries the proxy of some shard, which no other may see."""
    return name.startswith(f"{PROXY_VARIABLE}_")
