"""Runs a group of store calls in one transaction, so that a bad one spoils no other."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from scrapy_hexshard.components.store_calls import Call
from scrapy_hexshard.errors import HexShardError, StoreError
from scrapy_hexshard.store.contract import Kind, Settled, WorkStore

logger = logging.getLogger(__name__)

Results: TypeAlias = list[tuple[Call, Any]]


def run_group(
    store: WorkStore, group: list[Call], before_completing: Callable[[bool], None]
) -> Results:
    """Each call of *group* with its durable result, or the HexShardError it ended with.

    *before_completing* is called before keys are completed, and told whether that survives a power
    cut; if it raises a HexShardError, nothing of the group is settled.
    """
    settling = [call for call in group if call.settlement is not None]
    others = [call for call in group if call.settlement is None]
    refused: Results = []
    if error := _not_to_complete(store, settling, before_completing):
        refused, settling = _all(settling, error), []
    try:
        with plain_errors(), store.group():
            results = _settle_together(store, settling)
            results += [(call, _run(store, call)) for call in others]
    except HexShardError as failure:
        results = _all([*settling, *others], failure)
    # First: why a key is not completed comes before what follows from it.
    return refused + results


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Let the thread outlive what no store should raise: nobody would get an answer any more."""
    try:
        yield
    except HexShardError:
        raise
    except Exception as error:
        logger.debug("A store operation failed", exc_info=True)
        raise StoreError(
            f"A store operation failed with {type(error).__name__}: {error}. That should not be: "
            "the file is damaged, or it is a bug; the log at level DEBUG has the traceback."
        ) from None


def _not_to_complete(
    store: WorkStore, settling: list[Call], before_completing: Callable[[bool], None]
) -> HexShardError | None:
    """Why the keys of the calls cannot be completed now, if so."""
    if not any(call.settlement and call.settlement.kind is Kind.COMPLETE for call in settling):
        return None
    try:
        with plain_errors():
            # Outside the transaction, for which other workers would wait.
            before_completing(store.durable)
    except HexShardError as error:
        return error
    return None


def _settle_together(store: WorkStore, settling: list[Call]) -> Results:
    try:
        with plain_errors():
            settled = store.settle([call.settlement for call in settling if call.settlement])
    except HexShardError:
        # One of them cannot be stored: the others still can.
        return [(call, _run(store, call)) for call in settling]
    return [(call, _was_applied(call, settled)) for call in settling]


def _run(store: WorkStore, call: Call) -> Any:
    try:
        with plain_errors():
            return call.operation(store)
    except HexShardError as error:
        return error


def _all(calls: Iterable[Call], error: HexShardError) -> Results:
    return [(call, error) for call in calls]


def _was_applied(call: Call, settled: Settled) -> bool:
    assert call.settlement is not None
    token = call.settlement.claim.token
    return all(claim.token != token for claim in settled.stale)
