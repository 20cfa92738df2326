"""What to know about the proxies of a run before it starts. Pure, and without a word of any URL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from scrapy_hexshard.launcher.placeholders import has_shard
from scrapy_hexshard.launcher.proxies import FILE_VARIABLE, TEMPLATE_FILE_VARIABLE, ShardProxy
from scrapy_hexshard.proxy_url import Proxy

_HANDLER = "scrapy.core.downloader.handlers._httpx.HttpxDownloadHandler"
_KINDS: dict[str, Callable[[Proxy], bool]] = {
    "An IPv6 address as proxy, which Scrapy's default download handler uses for https:// pages "
    "alone": (lambda proxy: ":" in proxy.host and proxy.scheme.startswith("http")),
    "An https:// proxy, which Scrapy's default download handler uses for http:// pages alone": (
        lambda proxy: proxy.scheme == "https"
    ),
    "A SOCKS proxy, which needs a download handler that knows SOCKS in DOWNLOAD_HANDLERS, such as "
    f"{_HANDLER} with scrapy[httpx]>=2.18": (lambda proxy: proxy.scheme.startswith("socks")),
    "Credentials that are not ASCII, which Scrapy sends in Latin-1 unless HTTPPROXY_AUTH_ENCODING "
    "names what the proxy expects": lambda proxy: not "".join(proxy.login or ()).isascii(),
}


class Remark(NamedTuple):
    """A text, and the shards it is about, in groups."""

    text: str
    groups: list[list[int]]


def remarks(proxies: Mapping[int, Proxy], found: Mapping[int, ShardProxy]) -> Iterator[Remark]:
    """A remark for each kind of proxy that deserves one.

    *found* are those of *proxies* that were found for a shard of their own.
    """
    for text, applies in _KINDS.items():
        if shards := [shard for shard, proxy in proxies.items() if applies(proxy)]:
            yield Remark(text, [shards])
    yield from _open_files(found)
    yield from _shared(proxies, found)


def _open_files(found: Mapping[int, ShardProxy]) -> Iterator[Remark]:
    shards_of: dict[str, list[int]] = {}
    for shard, each in found.items():
        if each.source.open_to_others:
            variable = TEMPLATE_FILE_VARIABLE if each.from_template else f"{FILE_VARIABLE}_<shard>"
            shards_of.setdefault(variable, []).append(shard)
    for variable, shards in shards_of.items():
        text = f"Others can read the file that {variable} names; chmod 600 mends that"
        yield Remark(text, [shards])


def _shared(proxies: Mapping[int, Proxy], found: Mapping[int, ShardProxy]) -> Iterator[Remark]:
    plain = [
        shard
        for shard, each in found.items()
        if each.from_template and not has_shard(each.source.text)
    ]
    if len(plain) > 1:
        name = found[plain[0]].source.name
        yield Remark(f"No {{shard}} in {name}, so that one proxy serves", [plain])
    same: dict[object, list[int]] = {}
    for shard, proxy in proxies.items():
        same.setdefault(proxy.identity, []).append(shard)
    groups = [shards for shards in same.values() if len(shards) > 1 and shards != plain]
    if groups:
        yield Remark("One proxy for several shards", groups)
