"""What a power cut leaves of recorded files, as far as a disk may choose.

A write counts as safe once its file was synced after it. Of the others any may be on the disk, in
whole or in part, in sectors of 512 bytes. Names of files are taken to be safe at once, as a journal
of the file system keeps them in order; what SQLite does to its shared memory is not recorded, as
that is made anew.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512
_HEADER = struct.Struct("<cBHIQ")


@dataclass(frozen=True, slots=True)
class Operation:
    what: str
    name: str
    at: int
    data: bytes


@dataclass(slots=True)
class Disk:
    """The files of a folder: what is safe of each, and the operations that are not yet."""

    safe: dict[str, bytearray] = field(default_factory=dict)
    waiting: dict[str, list[Operation]] = field(default_factory=dict)

    def apply(self, operation: Operation) -> None:
        if operation.what == "U":
            self.safe.pop(operation.name, None)
            self.waiting.pop(operation.name, None)
            return
        file = self.safe.setdefault(operation.name, bytearray())
        waiting = self.waiting.setdefault(operation.name, [])
        if operation.what == "S":
            for each in waiting:
                _do(file, each)
            waiting.clear()
        else:
            waiting.append(operation)

    def cut(self, chance: random.Random) -> dict[str, bytes]:
        """The files after a power cut now."""
        left = {}
        for name, safe in self.safe.items():
            file = bytearray(safe)
            for each in self.waiting.get(name, ()):
                for part in _survives(each, chance):
                    _do(file, part)
            left[name] = bytes(file)
        return left

    def now(self, name: str) -> bytes:
        """What a reader would see of *name*, power cut or not."""
        file = bytearray(self.safe.get(name, b""))
        for each in self.waiting.get(name, ()):
            _do(file, each)
        return bytes(file)


def operations(log: Path) -> Iterator[Operation]:
    data = log.read_bytes()
    at = 0
    while at < len(data):
        what, name, _, size, where = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        text, written = data[at : at + name], data[at + name : at + name + size]
        yield Operation(what.decode(), text.decode(), where, written)
        at += name + size


def _survives(operation: Operation, chance: random.Random) -> Iterator[Operation]:
    fate = chance.randrange(3)
    if fate == 0:
        yield operation
    elif fate == 1 and operation.what == "W":
        for start in range(0, len(operation.data), SECTOR):
            if chance.randrange(2):
                part = operation.data[start : start + SECTOR]
                yield Operation("W", operation.name, operation.at + start, part)


def _do(file: bytearray, operation: Operation) -> None:
    if operation.what == "T":
        del file[operation.at :]
        file.extend(bytes(operation.at - len(file)))
        return
    end = operation.at + len(operation.data)
    file.extend(bytes(max(0, end - len(file))))
    file[operation.at : end] = operation.data
