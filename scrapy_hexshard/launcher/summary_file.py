"""The summary of a run as JSON, for scripts."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scrapy_hexshard.errors import LaunchError
from scrapy_hexshard.launcher.channel import write_all
from scrapy_hexshard.launcher.reports import Totals
from scrapy_hexshard.launcher.summary import Ended, pages_per_minute, run_seconds, sentences
from scrapy_hexshard.launcher.verdict import Life, exit_name


class SummaryFile:
    """Where the summary goes. A file of an earlier run is removed first, as none may pass for this.

    What a link leads to is emptied instead; standard output or error, by any name, is left alone.
    Raises LaunchError if it cannot be written there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.parent.is_dir():
            raise LaunchError(f"Cannot write {path}: {path.parent} is no folder.")
        if path.is_dir():
            raise LaunchError(f"Cannot write {path}: it is a folder. Name a file in it.")
        try:
            if self._is_replaced:
                path.unlink(missing_ok=True)
                _write(self._beside, "")
                self._beside.unlink()
            elif self._stream is None and (path.is_file() or not path.exists()):
                _write(path, "")
        except OSError as error:
            raise LaunchError(f"Cannot write {path}: {error.strerror}.") from None

    def write(self, facts: dict[str, Any]) -> None:
        """Write *facts*, whole or not at all; raises LaunchError, with exit code 1, if it fails."""
        text = json.dumps(facts, indent=2) + "\n"
        try:
            if self._is_replaced:
                _write(self._beside, text)
                self._beside.replace(self._path)
            elif (stream := self._stream) is not None:
                # Not by its path: that would write over what stands in a file already.
                write_all(stream, text.encode())
            else:
                _write(self._path, text)
        except OSError as error:
            with suppress(OSError):
                self._beside.unlink(missing_ok=True)
            message = f"Cannot write {self._path}: {error.strerror}."
            raise LaunchError(message, exit_code=1) from None

    @property
    def _is_replaced(self) -> bool:
        # A pipe or a device is written to as it is, and a link is somebody's arrangement.
        if self._path.is_symlink() or self._stream is not None:
            return False
        return not self._path.exists() or self._path.is_file()

    @property
    def _stream(self) -> int | None:
        """The open descriptor that the path leads to, if it is that of a stream."""
        named = re.fullmatch(r"/(?:dev|proc/self)/fd/([0-9]{1,9})", str(self._path))
        for fd in (1, 2, *map(int, named.groups() if named else ())):
            with suppress(OSError):
                if os.path.samestat(self._path.stat(), os.fstat(fd)):
                    return fd
        return None

    @property
    def _beside(self) -> Path:
        return self._path.with_name(f".{self._path.name}.{os.getpid()}")


def _write(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as stream:
        stream.write(text)


def summary_facts(
    workers: Sequence[Ended], exit_code: int, stopped_by: signal.Signals | None
) -> dict[str, Any]:
    """What the table at the end shows, and each life; times are in seconds."""
    total = sum((worker.totals for worker in workers), Totals())
    seconds = run_seconds(workers)
    return {
        "exit_code": exit_code,
        "stopped_by": stopped_by and stopped_by.name,
        "shards": len(workers),
        **_counts(total, seconds),
        "workers": [_worker_facts(worker) for worker in workers],
        "notes": list(sentences(workers)),
    }


def _worker_facts(worker: Ended) -> dict[str, Any]:
    return {
        "shard": worker.shard,
        "state": worker.verdict.state.value,
        "why": worker.verdict.why or None,
        **_counts(worker.totals, sum(life.seconds for life in worker.lives)),
        "lives": [_life_facts(life) for life in worker.lives],
    }


def _life_facts(life: Life) -> dict[str, Any]:
    return {
        "exit": exit_name(life.returncode),
        "reason": life.reason,
        "killed": life.forced,
        "stalled": life.stalled,
        **_counts(life.totals, life.seconds),
    }


def _counts(totals: Totals, seconds: float) -> dict[str, Any]:
    counts = asdict(totals)
    del counts["running"]  # nothing runs any more
    pace = pages_per_minute(totals, seconds)
    return {
        **counts,
        "pages_per_minute": None if pace is None else round(pace, 1),
        "seconds": round(seconds, 3),
    }
