"""Ends the units that make no progress, and lets go of requests that keep Scrapy from ending."""

from __future__ import annotations

import logging
from time import monotonic

from scrapy_hexshard.components.ending import Ending
from scrapy_hexshard.components.engine_state import EngineState
from scrapy_hexshard.units import Ledger

logger = logging.getLogger(__name__)


class Deadlines:
    """Looks from time to time for what hangs; *timeout* is how long a unit may, in seconds."""

    def __init__(
        self, state: EngineState, ledger: Ledger, ending: Ending, *, timeout: float
    ) -> None:
        self._state = state
        self._ledger = ledger
        self._ending = ending
        self._timeout = timeout
        self._patient_until = 0.0

    def end_overdue(self) -> None:
        """End the units whose time is up; their requests are abandoned."""
        active = self._state.active_tokens(self._ledger.tokens())
        for unit in self._ledger.end_overdue(active, monotonic(), self._timeout):
            logger.warning("%s made no progress for HEXSHARD_UNIT_TIMEOUT.", unit.key)

    def lost(self) -> None:
        """Leases were lost, and the requests of their units abandoned."""
        # They do not hang for that: they may well end by themselves.
        self._patient_until = monotonic() + self._timeout

    def leave_what_hangs(self, *, idle: bool) -> None:
        """A hanging callback would keep Scrapy, and so this worker, from ever ending.

        *idle* says that the worker has nothing else left to do.
        """
        if not self._state.only_abandoned_left(self._ledger.tokens()):
            return
        if self._state.closing:
            self._state.let_go()
        elif idle or (self._state.full and monotonic() > self._patient_until):
            self._ending.reason = self._ending.reason or (None if idle else "stuck")
            self._ending.close_spider(self._ending.reason or "finished")
            self._state.let_go()
