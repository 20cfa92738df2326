"""Compares what a crawl brought home with what the shop sells. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from shop import Product


def complaints(
    truth: Sequence[Product], items: Iterable[Mapping[str, Any]], status: Mapping[str, Any]
) -> list[str]:
    """A sentence for each thing that is wrong: in the exported *items*, or in the store's *status*.

    Empty when every product that has a page is there exactly once, as the shop shows it, and the
    work on each product has ended as it has to.
    """
    found: dict[Any, list[Mapping[str, Any]]] = defaultdict(list)
    for item in items:
        found[item.get("id")].append(item)
    wrong = [sentence for each in truth for sentence in _about(each, found.pop(each.id, []))]
    wrong += [f"The export has a product {number!r} that the shop does not." for number in found]
    return wrong + _about_status(truth, status)


def without_item(truth: Iterable[Product]) -> dict[str, list[str]]:
    """The pages of products that cannot have an item, under the outcome of their work."""
    pages: dict[str, list[str]] = defaultdict(list)
    for each in truth:
        if each.item is None:
            pages[each.outcome].append(f"/p/{each.id}")
    return dict(pages)


def _about(each: Product, found: list[Mapping[str, Any]]) -> list[str]:
    if each.item is None:
        return [f"Product {each.id} has an item, yet its page is a 404."] if found else []
    if len(found) != 1:
        return [f"Product {each.id} is in the export {len(found)} times."]
    if found[0] != each.item:
        return [f"Product {each.id} is in the export as {found[0]}, in the shop as {each.item}."]
    return []


def _about_status(truth: Iterable[Product], status: Mapping[str, Any]) -> list[str]:
    expected = Counter(each.outcome for each in truth)
    outcomes = Counter(status["outcomes"])
    wrong = [
        f"The store counts {outcomes[outcome]} keys as {outcome!r}, the shop {expected[outcome]}."
        for outcome in sorted({*expected, *outcomes})
        if outcomes[outcome] != expected[outcome]
    ]
    return wrong + [
        f"{status['total'][state]} keys are still {state}."
        for state in ("pending", "running", "failed")
        if status["total"][state]
    ]
