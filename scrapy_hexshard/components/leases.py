"""The leases of a worker: the claims it holds, renewed for as long as its reactor turns."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from scrapy_hexshard.components.group_commit import plain_errors
from scrapy_hexshard.errors import HexShardError
from scrapy_hexshard.store.contract import Claim, WorkStore

logger = logging.getLogger(__name__)


class Leases:
    """Leases of *seconds*, renewed for a reactor that does not turn for *patience* seconds."""

    def __init__(self, seconds: float, patience: float) -> None:
        self.seconds = seconds
        self._patience = patience
        self._held: dict[int, Claim] = {}
        self._renew_at = time.monotonic() + seconds / 3
        self._turned_at = time.monotonic()

    def turned(self) -> None:
        """The reactor has turned: it is alive, and so is the work it holds."""
        self._turned_at = time.monotonic()

    def hold(self, claims: Iterable[Claim]) -> None:
        """Renew *claims*, too, from now on."""
        self._held.update((claim.token, claim) for claim in claims)

    def drop(self, token: int) -> None:
        """The claim of *token* is settled."""
        self._held.pop(token, None)

    def held(self) -> list[Claim]:
        """The claims that have neither been settled nor found lost."""
        return list(self._held.values())

    def due_in(self) -> float:
        """Seconds until the leases are to be renewed; 0 if that is now."""
        return max(0.0, self._renew_at - time.monotonic())

    def renew(self, store: WorkStore) -> list[int]:
        """Extend the leases, unless the reactor hangs; the tokens of claims found lost."""
        self._renew_at = time.monotonic() + self.seconds / 3
        if time.monotonic() - self._turned_at > self._patience:
            return []
        try:
            with plain_errors(), store.group():
                kept = store.renew(self.held(), self.seconds)
                store.heartbeat()
        except HexShardError as error:
            logger.warning("The leases could not be renewed, trying again: %s", error)
            return []
        lost = self._held.keys() - {claim.token for claim in kept}
        for token in lost:
            del self._held[token]
        return sorted(lost)
