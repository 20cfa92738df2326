from __future__ import annotations

from typing import TYPE_CHECKING

import scrapy

from shop_crawl.product_pages import ProductPages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class ProductsSpider(ProductPages):
    """Every product of the shop's list, or those named by ``-a ids=3,17``: one item each."""

    name = "products"
    ids = ""

    async def start(self) -> AsyncIterator[scrapy.Request]:
        for url in await self.product_urls():
            yield scrapy.Request(url, self.parse_product)

    async def product_urls(self) -> list[str]:
        if self.ids:
            return [self.in_shop(f"/p/{number}") for number in self.ids.split(",")]
        assert self.crawler.engine
        listing = await self.crawler.engine.download_async(
            scrapy.Request(self.in_shop("/products.txt"))
        )
        return listing.text.split()
