"""Where a benchmark ran: the machine by name, and a folder that is really on a disk."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

IN_MEMORY = {"tmpfs", "ramfs", "devtmpfs"}
FSYNCS = 200


def data_folder(text: str) -> Path:
    """The folder at *text*, created if need be, for argparse; refused if it is in memory."""
    folder = Path(text).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if (kind := file_system(folder)) in IN_MEMORY:
        raise argparse.ArgumentTypeError(
            f"{folder} is on {kind}, which is in memory: nothing there has to reach a disk. "
            "Name a folder on a real one."
        )
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """A folder inside *folder* that is gone at the end of the block."""
    made = Path(tempfile.mkdtemp(dir=folder))
    try:
        yield made
    finally:
        shutil.rmtree(made)


def file_system(path: Path) -> str:
    """The type of the file system *path* is on, such as ``ext4``."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    above = [(point, kind) for _, point, kind, *_ in mounts if path.is_relative_to(point)]
    return max(above, key=lambda mount: len(mount[0]))[1]


def describe(folder: Path, packages: Iterable[str]) -> list[tuple[str, str]]:
    """What decides how fast things are here, by name."""
    facts = {
        "CPU": f"{_after_colon('/proc/cpuinfo', 'model name')}, {os.cpu_count()} cores",
        "Memory": f"{int(_after_colon('/proc/meminfo', 'MemTotal').split()[0]) / 2**20:.0f} GiB",
        "Disk": f"{file_system(folder)}, fsync of a 4 KiB write {_fsync(folder) * 1000:.2f} ms",
        "System": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "SQLite": sqlite3.sqlite_version,
    }
    installed = {name: found for name in packages if (found := _version(name))}
    return [*facts.items(), *installed.items()]


def load() -> str:
    """How busy the machine is, as runnable processes over the last minute."""
    return f"{os.getloadavg()[0]:.1f}"


def _after_colon(file: str, name: str) -> str:
    for line in Path(file).read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return "unknown"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _fsync(folder: Path) -> float:
    """The median of many, in seconds."""
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(FSYNCS):
            file.write(b"x" * 4096)
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - began)
    return statistics.median(times)
