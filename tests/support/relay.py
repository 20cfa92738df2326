"""Stands between a crawl and its origin, and does to the answers what networks and sites do.

It runs in a thread of this process. What becomes of a request is decided by its path and by how
often that was asked for, so that a crawl that tries again comes through in the end.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

# What to do with the Nth request for a path, N from 1: the name of a method of Relay, or None.
Fault = Callable[[str, int], str | None]
BIG = 10 * 2**20  # bytes


class Relay:
    """Passes requests on to *origin*, all but those for which *fault* names something else."""

    def __init__(self, origin: str, fault: Fault) -> None:
        url = urlsplit(origin)
        self._origin = url.hostname, url.port
        self._fault = fault
        self._asked: Counter[str] = Counter()
        self.done: Counter[str] = Counter()  # faults, by name
        self._listener: socket.socket
        self._serving: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> None:
        self._call(self._open())

    def shut(self) -> None:
        """Refuse connections, and drop those that are there."""
        self._call(self._shut())

    def close(self) -> None:
        self.shut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, coroutine: Any) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    async def _open(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        # Here and not by asyncio, which leaves what it is accepting open when told to stop.
        connection, _ = self._listener.accept()
        task = self._loop.create_task(self._serve(connection))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _shut(self) -> None:
        if self._listener.fileno() < 0:
            return
        self._loop.remove_reader(self._listener)
        self._listener.close()
        await asyncio.sleep(0.05)  # for what was accepted to be served
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await asyncio.sleep(0.05)  # for the transports to close

    async def _serve(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ", 2)[1].decode()
            self._asked[path] += 1
            name = self._fault(path, self._asked[path])
            if name is None:
                writer.write(await self._answer(head))
            else:
                self.done[name] += 1
                await getattr(self, f"_{name}")(head, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            writer.close()

    async def _answer(self, head: bytes) -> bytes:
        """The origin's answer, from a connection of its own."""
        reader, writer = await asyncio.open_connection(*self._origin)
        first, _, rest = head.partition(b"\r\n")
        lines = [each for each in rest.split(b"\r\n") if not each.lower().startswith(b"connection")]
        writer.write(b"\r\n".join([first, b"Connection: close", *lines]))
        try:
            answer = await reader.read()
        finally:
            writer.close()
        return answer.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)

    async def _reset(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async def _slow(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        answer = await self._answer(head)
        for start in range(0, len(answer), max(1, len(answer) // 4)):
            writer.write(answer[start : start + len(answer) // 4])
            await writer.drain()
            await asyncio.sleep(0.2)

    async def _short(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        """A body that ends before the length that was promised."""
        answer = await self._answer(head)
        writer.write(answer[: -max(1, len(answer) // 10)])

    async def _big(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        """The page, and ten megabytes of white space."""
        top, _, body = (await self._answer(head)).partition(b"\r\n\r\n")
        lines = [line for line in top.split(b"\r\n") if not line.startswith(b"Content-Length")]
        lines.append(b"Content-Length: %d" % (len(body) + BIG))
        writer.write(b"\r\n".join(lines) + b"\r\n\r\n" + body + b" " * BIG)

    async def _endless(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        """A redirect to the same page under another address, and so for ever."""
        path = head.split(b" ", 2)[1].partition(b"?")[0]
        answer = b"HTTP/1.1 302 Found\r\nConnection: close\r\nContent-Length: 0\r\n"
        writer.write(answer + b"Location: %s?%d\r\n\r\n" % (path, self.done["endless"]))


@contextmanager
def relay(origin: str, fault: Fault) -> Iterator[Relay]:
    """A relay before *origin*, for the time of a ``with`` block."""
    between = Relay(origin, fault)
    between.open()
    try:
        yield between
    finally:
        between.close()
