"""Whether a process group has ended but for its zombies, as Linux tells in /proc."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_STATE, _GROUP, _THREADS = 0, 2, 17  # places behind the name, in proc(5) numbered from 3


def holds_zombies_alone(group: int) -> bool:
    """Whether all processes of *group* are zombies, of which there is one at least.

    False where that cannot be known.
    """
    try:
        # That of another namespace of processes has other numbers.
        if (_PROC / "self").readlink() != Path(str(os.getpid())):
            return False
        members = list(_members(group))
    except OSError:
        return False
    return bool(members) and all(map(_is_zombie, members))


def _members(group: int) -> Iterator[list[str]]:
    for stat in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError):  # it has gone meanwhile
            # A name may hold anything, such as a parenthesis.
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            if fields[_GROUP] == str(group):
                yield fields


def _is_zombie(fields: list[str]) -> bool:
    # While other threads live, the process does, whatever has become of the first one.
    return fields[_STATE] in {"Z", "X"} and int(fields[_THREADS]) <= 1
