"""What the shop sells and how each product behaves, decided by a seed alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from random import Random
from statistics import fmean
from typing import Any

CATEGORIES = ["Bikes", "Books", "Boots", "Chairs", "Games", "Kettles", "Lamps", "Radios", "Tents"]
ADJECTIVES = ["Amber", "Bold", "Calm", "Dry", "Early", "Fine", "Grand", "Honest", "Light", "Quiet"]
NOUNS = ["Anchor", "Breeze", "Comet", "Delta", "Ember", "Fjord", "Grove", "Harbour", "Island"]
AUTHORS = ["Ada", "Bo", "Chen", "Dina", "Emre", "Femi", "Gita", "Hugo"]


@dataclass(frozen=True, slots=True)
class Product:
    """One product; its numbers run from 1."""

    id: int
    name: str
    category: int  # index into CATEGORIES
    price: str
    stock: int
    reviews: tuple[tuple[str, int], ...]  # author and stars
    missing: bool  # listed, but its page is a 404
    moved: bool  # its page redirects to /item/<slug>
    page_refusals: int  # so many first requests for its page are answered 503
    price_refusals: int  # the same for its price
    delay: float  # seconds its page takes

    @property
    def slug(self) -> str:
        return f"{self.name.lower().replace(' ', '-')}-{self.id}"

    @property
    def outcome(self) -> str:
        """How the work on this product has to end."""
        return "http 404" if self.missing else "done"

    @property
    def item(self) -> dict[str, Any] | None:
        """What a crawler has to bring home, once; None for a missing product."""
        if self.missing:
            return None
        stars = [stars for _, stars in self.reviews]
        return {
            "id": self.id,
            "name": self.name,
            "category": CATEGORIES[self.category],
            "price": self.price,
            "stock": self.stock,
            "reviews": len(stars),
            "rating": round(fmean(stars), 2) if stars else None,
        }


def catalogue(products: int, seed: int = 1) -> list[Product]:
    """The shop's products, the same ones for the same *seed*; a larger shop begins as a smaller."""
    return [product(number, seed) for number in range(1, products + 1)]


@lru_cache(maxsize=10_000)
def product(number: int, seed: int) -> Product:
    dice = Random(f"{seed}/{number}")
    return Product(
        id=number,
        name=f"{dice.choice(ADJECTIVES)} {dice.choice(NOUNS)}",
        category=number % len(CATEGORIES),
        price=f"{dice.randrange(199, 99_999) / 100:.2f}",
        stock=dice.randrange(100),
        reviews=tuple((dice.choice(AUTHORS), dice.randint(1, 5)) for _ in range(dice.randrange(6))),
        missing=number % 100 == Random(f"{seed}/missing/{number // 100}").randrange(100),
        moved=dice.random() < 0.05,
        # Never more than two: Scrapy tries a page three times before it gives up.
        page_refusals=dice.choice([1, 2]) if dice.random() < 0.03 else 0,
        price_refusals=1 if dice.random() < 0.02 else 0,
        delay=0.5 if dice.random() < 0.01 else 0.0,
    )
