"""Finds the workers of a launcher, so that one can be killed."""

from __future__ import annotations

import re
from pathlib import Path


def workers_of(launcher: int) -> dict[int, int]:
    """The process id of each shard's worker, by shard; empty where there is no ``/proc``."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            command = (process / "cmdline").read_bytes() if parent == str(launcher) else b""
        except OSError:
            continue  # it has just ended
        if shard := re.search(rb"\0shard=(\d+)\0", command):
            found[int(shard[1])] = int(process.name)
    return dict(sorted(found.items()))
