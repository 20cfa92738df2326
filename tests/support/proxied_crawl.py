"""Crawls behind a proxy, in processes of their own, and what they must not write anywhere."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from scrapy_hexshard import SQLiteWorkStore

PROJECT = Path(__file__).parents[2]
PATIENCE = 120

SPIDER = '''
import os
import scrapy
from scrapy.exceptions import CloseSpider

class PagesSpider(scrapy.Spider):
    name = "pages"
    own_proxy = os.environ.get("PROXY_IN_META")

    async def start(self):
        meta = {"proxy": self.own_proxy} if self.own_proxy else {}
        for path in self.paths.split(","):
            yield scrapy.Request(
                self.base + path if path.startswith("/") else path,
                self.parse,
                errback=self.failed,
                meta=meta,
            )

    def tell(self, what, request):
        """Show all that a careless spider could, but for a secret that it knows itself."""
        print(what, request.url)
        if not self.own_proxy:
            print(request.headers, request.meta, request.to_dict(spider=self))
            self.logger.debug("%s %r %r", what, request.headers, request.meta)
            open(self.tale, "a").write(repr(request.to_dict(spider=self)))

    def parse(self, response):
        self.tell("page", response.request)
        self.logger.info("%s", response.meta)
        yield {"url": response.url, "meta": dict(response.meta)}
        if response.url.endswith("/last"):
            raise CloseSpider("enough")

    def failed(self, failure):
        self.tell("failure", failure.request)
        self.logger.error(f"{failure.value!r} {failure.getTraceback()}", exc_info=True)
        return failure
'''

HTTPX = "scrapy.core.downloader.handlers._httpx.HttpxDownloadHandler"
HANDLERS: dict[str, dict[str, Any]] = {
    "twisted": {},
    "aiohttp": {"TWISTED_REACTOR_ENABLED": "0"},
    "httpx": {"DOWNLOAD_HANDLERS": f'{{"http": "{HTTPX}", "https": "{HTTPX}"}}'},
}
STORE = {
    "ADDONS": '{"scrapy_hexshard.HexShardAddon": 300}',
    "HEXSHARD_STORE": "crawl.sqlite3",
    "HEXSHARD_MAX_ATTEMPTS": "1",
}
# What may tell a worker to use a proxy: ours, the environment's, or a request's own.
WAYS = {
    "PROXY_URL": ("PROXY_URL",),
    "environment": ("http_proxy", "https_proxy"),
    "meta": ("PROXY_IN_META",),
}


@dataclass
class Run:
    """A crawl in a process of its own, and everything it may have written."""

    folder: Path
    process: subprocess.Popen[bytes] = field(init=False)
    output: bytes = b""

    def start(
        self,
        base: str,
        paths: str,
        proxy: str | None,
        way: str = "PROXY_URL",
        *,
        own: str | None = None,
        **settings: Any,
    ) -> Run:
        """Crawl *paths*, which begin with *base* or are whole URLs, behind *proxy*.

        *own* is a proxy that every request names, whatever else is set.
        """
        self.folder.mkdir()
        (self.folder / "spider.py").write_text(SPIDER)
        options = {
            # Scrapy itself caches the credentials of a proxy that a request names.
            "HTTPCACHE_ENABLED": str(int(way != "meta")),
            "HTTPCACHE_IGNORE_HTTP_CODES": "503",
            "HTTPCACHE_DIR": self.folder / "cache",
            "FEEDS": '{"items.jsonl": {"format": "jsonlines"}}',
            "DOWNLOADER_MIDDLEWARES": (
                '{"scrapy_hexshard.components.proxy_middleware.ProxyMiddleware": 950}'
            ),
            "RETRY_TIMES": "1",
            "DOWNLOAD_TIMEOUT": "30",
            **settings,
        }
        arguments = [f"{name}={value}" for name, value in options.items()]
        variables = {} if proxy is None else dict.fromkeys(WAYS[way], proxy)
        variables |= {} if own is None else {"PROXY_IN_META": own}
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "scrapy", "runspider", "spider.py"),
                *(part for argument in arguments for part in ("-s", argument)),
                *("-a", f"base={base}", "-a", f"paths={paths}", "-a", "tale=tale.txt"),
            ],
            cwd=self.folder,
            env={**without_proxies(os.environ), **variables, "PYTHONPATH": str(PROJECT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        return self

    def listed(self) -> bytes:
        """What ``ps`` shows of it while it runs."""
        return subprocess.check_output(["ps", "-ww", "-o", "args=", "-p", str(self.process.pid)])

    def end(self) -> Run:
        self.output, _ = self.process.communicate(timeout=PATIENCE)
        return self

    @property
    def outcomes(self) -> dict[str, int]:
        """How many keys of its store came to what."""
        with SQLiteWorkStore(str(self.folder / "crawl.sqlite3"), None, readonly=True) as store:
            return {name: count for name, count in store.outcomes().items() if count}

    def everything(self) -> bytes:
        # All but the spider itself, of which Python may have kept a compiled copy.
        files = [
            path
            for path in self.folder.rglob("*")
            if path.is_file() and path.name != "spider.py" and path.parent.name != "__pycache__"
        ]
        return self.output + b"\n".join(path.read_bytes() for path in files)


def without_proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """*environ* without a variable that sets a proxy, or says where none is to be used."""
    named = ("PROXY_URL", "PROXY_IN_META")
    return {k: v for k, v in environ.items() if k not in named and not k.lower().endswith("_proxy")}


def assert_no_secret(text: bytes, url: str) -> None:
    """No part of the proxy's *url* is in *text* in any spelling, but for its address."""
    userinfo = url.rpartition("@")[0].rpartition("/")[2]
    user, _, written = userinfo.partition(":")
    password = unquote(written)
    secrets = {url, userinfo, user, written, password}
    secrets |= {repr(password)[1:-1], ascii(password)[1:-1]}
    codecs = ("latin-1", "utf-8")
    pairs = [pair.encode(codec) for pair in (f"{user}:{password}", userinfo) for codec in codecs]
    spelled = {secret.encode(codec) for secret in secrets if secret for codec in codecs}
    spelled |= {base64.b64encode(pair).rstrip(b"=") for pair in pairs}
    assert [secret for secret in spelled if secret in text] == []
    assert b"Proxy-Authorization" not in text
