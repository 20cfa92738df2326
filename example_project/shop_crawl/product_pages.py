"""From a product's page over its price and its reviews to one item."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import scrapy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.http import TextResponse


class ProductPages(scrapy.Spider):
    """What the spiders of this project share: callbacks for a product, and the shop's address.

    The address is the spider argument ``shop_url``, else the setting ``SHOP_URL``.
    """

    shop_url = ""

    def in_shop(self, path: str) -> str:
        return urljoin(self.shop_url or self.settings["SHOP_URL"], path)

    def parse_product(self, response: TextResponse) -> Iterator[scrapy.Request]:
        item = {
            "id": int(response.css("main::attr(data-product)").get("")),
            "name": response.css("h1::text").get(),
            "category": response.css("a.category::text").get(),
        }
        reviews = response.urljoin(response.css("a.reviews::attr(href)").get(""))
        yield response.follow(
            response.css("a.price")[0],
            self.parse_price,
            cb_kwargs={"item": item, "reviews": reviews},
        )

    def parse_price(
        self, response: TextResponse, item: dict[str, Any], reviews: str
    ) -> Iterator[scrapy.Request]:
        offer = response.json()
        item = {**item, "price": offer["price"], "stock": offer["stock"]}
        yield response.follow(reviews, self.parse_reviews, cb_kwargs={"item": item})

    def parse_reviews(
        self, response: TextResponse, item: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        stars = [review["stars"] for review in response.json()["reviews"]]
        yield {**item, "reviews": len(stars), "rating": round(fmean(stars), 2) if stars else None}
