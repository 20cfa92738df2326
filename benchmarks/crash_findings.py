"""What a crawl brought home beside what the shop sells, and what it asked the shop for. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OF_PRODUCTS = ("/p/", "/item/", "/api/")
LAST_OF_PRODUCT = "/api/reviews/"


@dataclass(frozen=True, slots=True)
class Findings:
    """How far a crawl's output is from the truth."""

    missing: int  # products that are not in it
    twice: int  # items that are in it once more
    torn: int  # lines that are no item of the shop
    again: int  # pages that the shop had answered before


def compare(
    truth: Iterable[Mapping[str, Any]], output: bytes, log: Sequence[Mapping[str, Any]]
) -> Findings:
    """Findings about *output*, JSON lines, with the shop's *truth* and its access log."""
    sold = {each["item"]["id"]: each["item"] for each in truth if each["item"]}
    lines = output.splitlines()
    found = Counter(item["id"] for line in lines if (item := _item(line, sold)))
    answered = Counter(
        each["path"]
        for each in log
        if each["path"].startswith(OF_PRODUCTS) and each["status"] < 500
    )
    return Findings(
        missing=len(sold) - len(found),
        twice=found.total() - len(found),
        torn=len(lines) - found.total(),
        again=answered.total() - len(answered),
    )


def finished_products(lines: Iterable[bytes]) -> int:
    """How many products had the last of their pages answered, by these lines of an access log."""
    asked = map(json.loads, lines)
    return sum(each["path"].startswith(LAST_OF_PRODUCT) and each["status"] == 200 for each in asked)


def _item(line: bytes, sold: Mapping[int, Any]) -> Any:
    try:
        item = json.loads(line)
    except ValueError:
        return None
    known = isinstance(item, dict) and sold.get(item.get("id")) == item
    return item if known else None
