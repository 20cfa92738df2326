"""The example's checker sees each way in which a crawl can be wrong."""

from __future__ import annotations

from typing import Any

import pytest
from check import complaints, without_item
from shop import catalogue

TRUTH = catalogue(200)
ABSENT = [each for each in TRUTH if each.missing]


def good_items() -> list[dict[str, Any]]:
    return [each.item for each in TRUTH if each.item]


def good_status() -> dict[str, dict[str, int]]:
    dead = len(ABSENT)
    return {
        "total": {"pending": 0, "running": 0, "done": 200 - dead, "failed": 0, "dead": dead},
        "outcomes": {"done": 200 - dead, "http 404": dead},
    }


def test_a_right_crawl_raises_no_complaint_in_whatever_order() -> None:
    assert complaints(TRUTH, reversed(good_items()), good_status()) == []


def test_products_without_an_item_are_named_under_their_outcome() -> None:
    assert without_item(TRUTH) == {"http 404": [f"/p/{each.id}" for each in ABSENT]}
    assert len(ABSENT) == 2


def test_a_product_is_named_when_it_is_not_there_or_there_twice() -> None:
    items = good_items()
    lost, double = items.pop(0), items[-1]
    assert complaints(TRUTH, [*items, double], good_status()) == [
        f"Product {lost['id']} is in the export 0 times.",
        f"Product {double['id']} is in the export 2 times.",
    ]


def test_an_item_that_differs_is_shown_beside_the_right_one() -> None:
    right, *others = good_items()
    wrong = {**right, "price": "0.00"}
    (complaint,) = complaints(TRUTH, [wrong, *others], good_status())
    assert str(wrong) in complaint
    assert str(right) in complaint


@pytest.mark.parametrize(
    ("number", "words"), [(ABSENT[0].id, "its page is a 404"), (201, "that the shop does not")]
)
def test_an_item_that_cannot_be_is_named(number: int, words: str) -> None:
    (complaint,) = complaints(TRUTH, [*good_items(), {"id": number}], good_status())
    assert words in complaint
    assert str(number) in complaint


def test_outcomes_other_than_those_of_the_shop_are_named() -> None:
    status = good_status()
    status["outcomes"] |= {"done": status["outcomes"]["done"] - 1, "http 503": 1}
    assert complaints(TRUTH, good_items(), status) == [
        "The store counts 197 keys as 'done', the shop 198.",
        "The store counts 1 keys as 'http 503', the shop 0.",
    ]


@pytest.mark.parametrize("state", ["pending", "running", "failed"])
def test_work_that_is_left_is_named(state: str) -> None:
    status = good_status()
    status["total"][state] = 3
    assert complaints(TRUTH, good_items(), status) == [f"3 keys are still {state}."]
