"""Which process a worker is, and whether such a process is dead. In doubt it is not."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_MACHINE_ID = Path("/etc/machine-id")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process as others can find it again; a part that cannot be told here is None."""

    boot: str | None
    machine: str | None
    namespace: str | None
    pid: int
    born: int | None  # clock ticks from boot to the start of the process

    @classmethod
    def of_this(cls) -> ProcessIdentity:
        """The identity of the calling process."""
        pid = os.getpid()
        return cls(
            boot=_read(_PROC / "sys/kernel/random/boot_id"),
            machine=_read(_MACHINE_ID),
            namespace=_namespace(),
            pid=pid,
            born=_born(pid),
        )

    def is_dead(self, here: ProcessIdentity) -> bool:
        """Whether this process surely no longer runs, as seen from the process *here*."""
        if self.boot is None or here.boot is None:
            return False
        if self.boot != here.boot:
            return self.machine is not None and self.machine == here.machine
        if self.namespace is None or self.namespace != here.namespace or self.born is None:
            return False
        return _is_gone(self.pid) or _born(self.pid) not in (self.born, None)


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return _state(pid) in ("Z", "X")


def _born(pid: int) -> int | None:
    fields = _stat_fields(pid)
    return int(fields[19]) if fields else None


def _state(pid: int) -> str | None:
    fields = _stat_fields(pid)
    return fields[0] if fields else None


def _stat_fields(pid: int) -> list[str] | None:
    # The fields after the name, which may itself hold spaces and parentheses; see proc(5).
    text = _read(_PROC / str(pid) / "stat")
    return text.rpartition(")")[2].split() if text else None


def _namespace() -> str | None:
    try:
        return os.readlink(_PROC / "self/ns/pid")  # noqa: PTH115 (it is no path)
    except OSError:
        return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None
