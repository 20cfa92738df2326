"""The shop's HTTP/1.1 server: one process, one loop, keep-alive, a line of log per request."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
import time
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

from shop.pages import Page, Pages, error_page

if TYPE_CHECKING:
    from pathlib import Path

HOST = "127.0.0.1"
MAX_HEAD_BYTES = 65536


class AccessLog:
    """JSON lines, each written whole when its request has arrived; silent without a path."""

    def __init__(self, path: Path | None) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._file = os.open(path, flags, 0o644) if path else None

    def write(self, peer: int, method: str, path: str, status: int) -> None:
        if self._file is None:
            return
        record = {
            "time": time.time(),
            "peer": peer,
            "method": method,
            "path": path,
            "status": status,
        }
        os.write(self._file, json.dumps(record).encode() + b"\n")


class Shop:
    """Answers requests; remembers which pages it has refused, and how often."""

    def __init__(self, pages: Pages, log: AccessLog, delay: float = 0.0) -> None:
        self._page = lru_cache(maxsize=100_000)(pages.page)
        self._log = log
        self._delay = delay
        self._asked: Counter[str] = Counter()

    def answer(self, method: str, target: str, peer: int) -> tuple[Page, float]:
        """The page to send and the seconds to wait before."""
        page = self._page(target) if method in {"GET", "HEAD"} else error_page(405)
        delay = self._delay + page.delay
        if page.refusals:
            self._asked[target] += 1
            if self._asked[target] <= page.refusals:
                page = error_page(page.refusal_status)
        self._log.write(peer, method, target, page.status)
        return page, delay


class Connection(asyncio.Protocol):
    """One client; its requests are answered in turn."""

    def __init__(self, shop: Shop, loop: asyncio.AbstractEventLoop) -> None:
        self._shop = shop
        self._loop = loop
        self._received = b""
        self._waiting = False  # an answer is on its way, later requests stand behind it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._peer: int = transport.get_extra_info("peername")[1]

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._serve()

    def _serve(self) -> None:
        while not self._waiting and not self._transport.is_closing():
            head, end, rest = self._received.partition(b"\r\n\r\n")
            if not end:
                if len(head) > MAX_HEAD_BYTES:
                    self._transport.abort()
                return
            self._received = rest
            self._answer(head)

    def _answer(self, head: bytes) -> None:
        request_line, _, headers = head.partition(b"\r\n")
        try:
            method, target, version = request_line.decode("ascii").split(" ")
        except ValueError:
            bad = error_page(400)
            self._send(bad.head + bad.body, keep_alive=False)
            return
        page, delay = self._shop.answer(method, target, self._peer)
        data = page.head if method == "HEAD" else page.head + page.body
        # The body of a POST is not read, so nothing after it could be told from a request.
        keep_alive = (
            page.status != 405
            and version == "HTTP/1.1"
            and b"connection: close" not in headers.lower()
        )
        if delay:
            self._waiting = True
            self._loop.call_later(delay, self._send_late, data, keep_alive)
        else:
            self._send(data, keep_alive)

    def _send_late(self, data: bytes, keep_alive: bool) -> None:
        self._waiting = False
        self._send(data, keep_alive)
        self._serve()

    def _send(self, data: bytes, keep_alive: bool) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(data)
        if not keep_alive:
            self._transport.close()


async def serve(
    *,
    port: int,
    products: int,
    seed: int,
    log: Path | None,
    delay: float,
    reviews_fail_first: int,
    until_stdin_closes: bool,
) -> None:
    """Serve until a signal says stop, printing the address once requests can come."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    listener = socket.create_server((HOST, port), backlog=1024)
    base = f"http://{HOST}:{listener.getsockname()[1]}"
    shop = Shop(Pages(products, seed, base, reviews_fail_first), AccessLog(log), delay)
    server = await loop.create_server(lambda: Connection(shop, loop), sock=listener)
    if until_stdin_closes:
        watch = threading.Thread(target=wait_for_end, args=(loop, stop), daemon=True)
        watch.start()
    print(base, flush=True)
    await stop.wait()
    server.close()


def wait_for_end(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Stop once stdin ends: whoever opened the shop holds its other end, and is gone."""
    while os.read(0, 4096):
        pass
    loop.call_soon_threadsafe(stop.set)
