from __future__ import annotations

from typing import TYPE_CHECKING

import scrapy
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

from shop_crawl.product_pages import ProductPages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class CatalogueSpider(ProductPages, CrawlSpider):
    """Finds the products by itself: from the home page through every page of every category."""

    name = "catalogue"
    rules = (
        Rule(LinkExtractor(allow=r"/c/\d+")),
        Rule(LinkExtractor(allow=r"/p/\d+$"), callback="parse_product"),
    )

    async def start(self) -> AsyncIterator[scrapy.Request]:
        yield scrapy.Request(self.in_shop("/"))
