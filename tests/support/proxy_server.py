"""A real proxy on loopback, as a process: ``python proxy_server.py KIND ...`` prints its port.

It ends when its standard input does. It is written with packages that tests alone need, and is not
imported by any.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys


def serve_http(login: str, log: str, certificate: str | None) -> None:
    """An HTTP proxy, which forwards http and tunnels https; over TLS with a *certificate*."""
    import proxy

    options = ["--hostname=127.0.0.1", "--port=0", "--num-acceptors=1", "--num-workers=1"]
    options += [f"--basic-auth={login}", f"--log-file={log}", "--log-level=INFO"]
    if certificate:
        options += [f"--cert-file={certificate}", f"--key-file={certificate}"]
    with proxy.Proxy(options) as server:
        print(server.flags.port, flush=True)
        sys.stdin.read()


def serve_socks(login: str, log: str) -> None:
    """A SOCKS5 proxy."""
    import anyio
    from tiny_proxy import Socks5ProxyHandler

    logging.basicConfig(filename=log, level=logging.INFO)
    user, _, password = login.partition(":")

    async def serve() -> None:
        handler = Socks5ProxyHandler(username=user, password=password)
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        print(listener.extra(anyio.abc.SocketAttribute.local_port), flush=True)
        serving = asyncio.ensure_future(listener.serve(handler.handle))
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        serving.cancel()

    asyncio.run(serve())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["http", "https", "socks5"])
    parser.add_argument("login")
    parser.add_argument("log")
    parser.add_argument("certificate", nargs="?")
    chosen = parser.parse_args()
    if chosen.kind == "socks5":
        serve_socks(chosen.login, chosen.log)
    else:
        serve_http(chosen.login, chosen.log, chosen.certificate)


if __name__ == "__main__":
    main()
