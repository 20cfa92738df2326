"""What a worker says of itself over its status pipe."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeGuard

from scrapy_hexshard.pipes import MAX_LINE_BYTES
from scrapy_hexshard.sharding import MAX_SHARDS

FINISHED = "finished"  # the only reason for which a shard is done


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts of keys, and of what they led to. ``faults`` are the dead keys that should not be."""

    done: int = 0
    failed: int = 0
    dead: int = 0
    faults: int = 0
    released: int = 0
    items: int = 0
    running: int = 0
    pages: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(*(getattr(self, name) + getattr(other, name) for name in _COUNTS))

    @property
    def settled(self) -> int:
        """Attempts that came to an end, good or bad."""
        return self.done + self.failed + self.dead

    @property
    def moves(self) -> int:
        """A number that grows with all that counts as progress."""
        return self.settled + self.released + self.items + self.pages


class Extent(NamedTuple):
    """The keys of a shard in its store, and those of them that are neither done nor dead."""

    keys: int
    open: int


class Fault(NamedTuple):
    """The outcome of most attempts that should not have failed, and of how many."""

    outcome: str
    times: int


_COUNTS = tuple(field.name for field in fields(Totals))


class Reports:
    """The reports of one life of a worker, read as they arrive."""

    def __init__(self) -> None:
        self.heard = False  # the worker has opened a spider, and says so
        self.reason: str | None = None  # why the spider closed; not `finished`, if any was not
        self.detail: str | None = None  # what it says beside that reason
        self.fault: Fault | None = None  # of most attempts
        self.shard: int | None = None  # the one it works, as it says
        self.unreadable = 0
        self.extent: Extent | None = None  # None while the worker has not told it
        self._earlier = Totals()
        self._current = Totals()
        self._open = 0
        self._held = b""

    @property
    def totals(self) -> Totals:
        """The totals of this life, over all spiders it opened one after the other."""
        return self._earlier + self._current

    @property
    def running(self) -> int:
        """The keys it works on at the moment."""
        return self._current.running if self._open > 0 else 0

    def feed(self, data: bytes) -> None:
        """Take in *data*, which need not end with a line."""
        *lines, self._held = (self._held + data).split(b"\n")
        for line in lines:
            self._take(line)
        if len(self._held) > MAX_LINE_BYTES:
            self._held = b""
            self.unreadable += 1

    def _take(self, line: bytes) -> None:
        report = _parse(line)
        match report:
            case {"event": "opened"}:
                self._open += 1
                self.shard = report.get("shard", self.shard)  # _parse() has looked at it
                self._earlier, self._current = self.totals, Totals()
            case {"event": "progress"}:
                self._current = _totals(report)
            case {"event": "closed", "reason": str(reason)}:
                self._current = _totals(report)
                self._open -= 1
                if self.reason in {None, FINISHED}:
                    detail = report.get("detail")
                    self.reason, self.detail = reason, detail if isinstance(detail, str) else None
                self.fault = max(self.fault, _fault(report), key=_times)
            case _:
                self.unreadable += 1
                return
        self.heard = True
        self.extent = _extent(report) or self.extent

    @property
    def finished(self) -> bool:
        """Whether every spider that opened has closed because its shard is finished."""
        return self.reason == FINISHED and self._open <= 0


def _parse(line: bytes) -> dict[str, Any]:
    """The report in *line*, empty if there is none, or one with numbers that are none."""
    try:
        report = json.loads(line)
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or nested without end
        return {}
    return report if isinstance(report, dict) and _is_shown_safely(report) else {}


def _is_shown_safely(report: dict[str, Any]) -> bool:
    # They are shown as they are, so that a text, with who knows what in it, must not pass for one.
    if not all(_is_count(report.get(name, 0)) for name in _COUNTS):
        return False
    shard = report.get("shard", 0)
    return _is_count(shard) and shard < MAX_SHARDS


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and value >= 0


def _totals(report: dict[str, Any]) -> Totals:
    return Totals(**{name: report[name] for name in _COUNTS if name in report})


def _extent(report: dict[str, Any]) -> Extent | None:
    keys, open_ = report.get("keys"), report.get("open")
    if _is_count(keys) and _is_count(open_) and open_ <= keys:
        return Extent(keys, open_)
    return None


def _fault(report: dict[str, Any]) -> Fault | None:
    outcome, times = report.get("fault"), report.get("fault_times")
    return Fault(outcome, times) if isinstance(outcome, str) and _is_count(times) else None


def _times(fault: Fault | None) -> int:
    return fault.times if fault else -1
