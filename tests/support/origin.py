"""A small HTTP origin on loopback, as a process: ``python origin.py`` prints its port.

It ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import zlib
from urllib.parse import parse_qsl, urlsplit


def _png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", 60, 60, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x80" * 60) * 60)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


PNG = _png()
HITS: dict[str, int] = {}


async def answer(target: str) -> tuple[int, str, bytes, str] | None:
    """Status, content type, body and further headers for *target*; None drops the connection."""
    url = urlsplit(target)
    query = dict(parse_qsl(url.query))
    hits = HITS[target] = HITS.get(target, 0) + 1
    if url.path == "/drop":
        return None
    if url.path == "/slow":
        await asyncio.sleep(float(query.get("t", "0.2")))
    if url.path == "/hang":
        await asyncio.sleep(3600)
    if url.path.startswith("/status/"):
        return int(url.path.split("/")[2]), "text/html", b"status", ""
    if url.path == "/heals":  # fails the first n times
        healed = hits > int(query["n"])
        return (200 if healed else int(query.get("s", "500"))), "text/html", b"healed", ""
    if url.path == "/redirect":
        return int(query.get("c", "302")), "text/html", b"", f"Location: {query['u']}\r\n"
    if url.path == "/refresh":
        page = f'<html><head><meta http-equiv="refresh" content="0;url={query["u"]}"></head></html>'
        return 200, "text/html", page.encode(), ""
    if url.path == "/robots.txt":
        return 200, "text/plain", b"User-agent: *\nDisallow: /private\n", ""
    if url.path == "/image":
        return 200, "image/png", PNG, ""
    if url.path == "/page":
        return 200, "text/html", f"<html><body>{query['b']}</body></html>".encode(), ""
    if url.path == "/sitemap.xml":
        links = "".join(f"<url><loc>{query.get('o', '')}/ok?m={n}</loc></url>" for n in range(3))
        head = '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
        return 200, "text/xml", f"{head}{links}</urlset>".encode(), ""
    if url.path == "/hits":
        return 200, "text/plain", str(HITS.get(query["of"], 0)).encode(), ""
    return 200, "text/html", b"<html>ok</html>", ""


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while line := await reader.readline():
            while await reader.readline() not in (b"\r\n", b""):
                pass
            answered = await answer(line.split()[1].decode())
            if answered is None:
                break
            status, kind, body, more = answered
            head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n{more}"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
