"""The visits of results to the spider: to whose unit a response or the running code belongs."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar

from scrapy import Request
from scrapy.utils.asyncio import is_asyncio_available
from twisted.python.failure import Failure

from scrapy_hexshard.units import Unit

_T = TypeVar("_T")


class Visit:
    """One result on its way through the spider, its pipelines and follow-ups included."""

    __slots__ = ("failure", "ids", "own", "raised", "unit", "yielded")

    def __init__(self, unit: Unit, own: bool, request: Request, result: Any) -> None:
        self.unit = unit
        self.own = own
        self.ids = (id(request), id(result))
        self.failure = result.value if isinstance(result, Failure) else None
        self.raised = False
        self.yielded = 0


_current: ContextVar[Visit | None] = ContextVar("hexshard_visit", default=None)


class Visits:
    """The visits under way."""

    def __init__(self) -> None:
        # By id() of the request and of the result, both alive for as long as the visit.
        self._visits: dict[int, Visit] = {}
        # Elsewhere callbacks run in a shared context, which would name the wrong unit.
        self._context_is_ours = is_asyncio_available()

    def begin(self, unit: Unit, own: bool, request: Request, result: Any) -> Visit:
        """The visit of *result*, which *unit* got for *request*; *own* if that is the key's own."""
        visit = Visit(unit, own, request, result)
        for each in visit.ids:
            self._visits[each] = visit
        return visit

    def end(self, visit: Visit) -> None:
        """Forget a visit that is over."""
        for each in visit.ids:
            self._visits.pop(each, None)

    def of(self, part: object) -> Visit | None:
        """The visit that has *part* as its request or its result."""
        return self._visits.get(id(part))

    def unit_of(self, part: object) -> Unit | None:
        """The unit of the visit that has *part* as its request or its result."""
        visit = self.of(part)
        return None if visit is None else visit.unit

    def run(self, visit: Visit | None, function: Callable[..., _T], *args: Any) -> _T:
        """Call *function*; what it starts is part of *visit*, or of none."""
        before = _current.set(visit)
        try:
            return function(*args)
        finally:
            _current.reset(before)

    def current(self) -> Visit | None:
        """The visit that the running code is part of, as far as that can be told."""
        return _current.get() if self._context_is_ours else None

    @staticmethod
    def leave() -> None:
        """What the running code does from here on is part of no visit."""
        _current.set(None)
