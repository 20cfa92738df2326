"""The summary of a run as JSON, for scripts."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scrapy_hexshard.errors import LaunchError
from scrapy_hexshard.launcher.reports import Totals
from scrapy_hexshard.launcher.summary import Ended, pages_per_minute, run_seconds, sentences
from scrapy_hexshard.launcher.verdict import Life, exit_name


class SummaryFile:
    """Where the summary goes. A file of an earlier run is removed first, as none may pass for this.

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
                self._write_beside("")
                self._beside.unlink()
        except OSError as error:
            raise LaunchError(f"Cannot write {path}: {error.strerror}.") from None

    def write(self, facts: dict[str, Any]) -> None:
        """Write *facts*, whole or not at all; raises LaunchError, with exit code 1, if it fails."""
        text = json.dumps(facts, indent=2) + "\n"
        try:
            if self._is_replaced:
                self._write_beside(text)
                self._beside.replace(self._path)
            else:
                self._path.write_text(text)
        except OSError as error:
            with suppress(OSError):
                self._beside.unlink(missing_ok=True)
            message = f"Cannot write {self._path}: {error.strerror}."
            raise LaunchError(message, exit_code=1) from None

    @property
    def _is_replaced(self) -> bool:
        # A pipe or a device such as /dev/stdout is written to as it is.
        return not self._path.exists() or self._path.is_file()

    @property
    def _beside(self) -> Path:
        return self._path.with_name(f".{self._path.name}.{os.getpid()}")

    def _write_beside(self, text: str) -> None:
        fd = os.open(self._beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
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
