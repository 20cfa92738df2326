"""Which variables carry the proxy of which shard.

That is ``PROXY_URL_<shard>``, the file that ``PROXY_URL_FILE_<shard>`` names, or else
``PROXY_URL_TEMPLATE``, filled in with the shard.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from scrapy_hexshard.errors import SettingError
from scrapy_hexshard.launcher.placeholders import fill, has_unknown
from scrapy_hexshard.launcher.proxy_files import Source, read_source
from scrapy_hexshard.proxy_url import PROXY_VARIABLE, Proxy, parse_proxy

FILE_VARIABLE = f"{PROXY_VARIABLE}_FILE"
TEMPLATE_VARIABLE = f"{PROXY_VARIABLE}_TEMPLATE"
TEMPLATE_FILE_VARIABLE = f"{TEMPLATE_VARIABLE}_FILE"

_TEMPLATES = (TEMPLATE_VARIABLE, TEMPLATE_FILE_VARIABLE)
_OF_SHARD = re.compile(rf"(?:{PROXY_VARIABLE}|{FILE_VARIABLE})_(0|[1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class ShardProxy:
    """The proxy of one shard, and where it was found."""

    proxy: Proxy
    source: Source
    from_template: bool


def read_proxies(environ: Mapping[str, str], shards: int) -> dict[int, ShardProxy]:
    """The proxies of shards 0 to *shards* - 1 that have one; an empty variable counts as none.

    Raises SettingError, naming the variable and the rule, for a value that is no proxy URL, for
    braces in a template that are none of its own, and for a file that cannot be read.
    """
    template = read_source(environ, *_TEMPLATES)
    if template and has_unknown(template.text):
        # Without a word of what is in them, as that may be a password.
        raise SettingError(
            f"{template.name} has something in braces that is neither {{shard}} nor {{shards}}; "
            "nothing else is filled in. Mend it, or percent-encode braces that are meant as they "
            "are: %7B and %7D."
        )
    found = {}
    for shard in range(shards):
        own = read_source(environ, f"{PROXY_VARIABLE}_{shard}", f"{FILE_VARIABLE}_{shard}")
        if own:
            found[shard] = ShardProxy(_parse(own.name, own.text), own, from_template=False)
        elif template:
            name = f"{template.name} for shard {shard}"
            proxy = _parse(name, fill(template.text, shard, shards))
            found[shard] = ShardProxy(proxy, template, from_template=True)
    return found


def _parse(name: str, text: str) -> Proxy:
    proxy = parse_proxy(name, text)
    try:
        os.fsencode(proxy.url)
    except UnicodeEncodeError:  # a file is read as UTF-8, whatever the locale
        raise SettingError(
            f"{name} holds a character that {sys.getfilesystemencoding()}, in which variables are "
            "written here, does not have: percent-encode it."
        ) from None
    return proxy


def names_beyond(environ: Mapping[str, str], shards: int) -> list[str]:
    """The variables that carry the proxy of a shard which is none of the *shards*."""
    numbers = {name: match[1] for name in _set(environ) if (match := _OF_SHARD.fullmatch(name))}
    digits = len(str(shards))
    return sorted(
        name for name, number in numbers.items() if len(number) > digits or int(number) >= shards
    )


def unknown_names(environ: Mapping[str, str]) -> list[str]:
    """The variables that look as if they carried a proxy, but are read by nobody."""
    return sorted(
        name
        for name in _set(environ)
        if is_shard_variable(name) and name not in _TEMPLATES and not _OF_SHARD.fullmatch(name)
    )


def template_names(environ: Mapping[str, str]) -> list[str]:
    """The variables that hold a template, or name the file that does."""
    return [name for name in _TEMPLATES if name in _set(environ)]


def _set(environ: Mapping[str, str]) -> list[str]:
    """The variables that count as set: an empty one does not."""
    return [name for name, value in environ.items() if value.strip()]


def is_shard_variable(name: str) -> bool:
    """Whether *name* carries the proxy of some shard, which no other may see."""
    return name.startswith(f"{PROXY_VARIABLE}_")
