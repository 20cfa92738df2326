from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy.spiders import SitemapSpider

from shop_crawl.product_pages import ProductPages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class ShopSitemapSpider(SitemapSpider, ProductPages):
    """Takes the products from the sitemap that the shop's robots.txt names."""

    name = "sitemap"
    sitemap_rules = [(r"/p/\d+$", "parse_product")]

    async def start(self) -> AsyncIterator[Any]:
        self.sitemap_urls = [self.in_shop("/robots.txt")]
        async for request in super().start():
            yield request
