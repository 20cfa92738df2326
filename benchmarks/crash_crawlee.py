"""The shop crawled by crawlee: a program of its own, started by crash.py.

Each request waits in crawlee's queue and each item goes to its data set, so that a crawl can be
resumed as its documentation has it: the same program again, with ``CRAWLEE_PURGE_ON_START=0``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.parse import urljoin
from urllib.request import urlopen

from crawlee import ConcurrencySettings, Request, service_locator
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.router import Router
from crawlee.storage_clients import FileSystemStorageClient, SqlStorageClient
from crawlee.storages import Dataset

STORAGE = {"files": FileSystemStorageClient, "sql": SqlStorageClient}
router = Router[ParselCrawlingContext]()


@router.default_handler
async def product(context: ParselCrawlingContext) -> None:
    page = context.selector
    item = {
        "id": int(page.css("main::attr(data-product)").get("")),
        "name": page.css("h1::text").get(),
        "category": page.css("a.category::text").get(),
    }
    reviews = page.css("a.reviews::attr(href)").get("")
    await _follow(context, page.css("a.price::attr(href)").get(""), "price", item, reviews)


@router.handler("price")
async def price(context: ParselCrawlingContext) -> None:
    offer = json.loads(await context.http_response.read())
    known: Any = context.request.user_data
    item = {**known["item"], "price": offer["price"], "stock": offer["stock"]}
    await _follow(context, known["reviews"], "reviews", item)


@router.handler("reviews")
async def reviews(context: ParselCrawlingContext) -> None:
    answer = json.loads(await context.http_response.read())
    stars = [review["stars"] for review in answer["reviews"]]
    rating = round(fmean(stars), 2) if stars else None
    known: Any = context.request.user_data
    await context.push_data({**known["item"], "reviews": len(stars), "rating": rating})


async def _follow(
    context: ParselCrawlingContext, path: str, label: str, item: dict[str, Any], reviews: str = ""
) -> None:
    url = urljoin(context.request.url, path)
    known: Any = {"item": item, "reviews": reviews}
    await context.add_requests([Request.from_url(url, label=label, user_data=known)])


async def crawl(concurrency: int) -> None:
    """Crawl what is left of the shop's list."""
    crawler = ParselCrawler(
        request_handler=router,
        respect_robots_txt_file=True,
        concurrency_settings=ConcurrencySettings(
            concurrency, concurrency, desired_concurrency=concurrency
        ),
        statistics_log_format="inline",
    )
    with urlopen(urljoin(os.environ["SHOP_URL"], "/products.txt")) as listing:
        urls = listing.read().decode().split()
    await crawler.run(urls)


async def export(file: Path) -> None:
    """Write the data set's items as JSON lines."""
    data = await Dataset.open()
    with file.open("w") as lines:
        async for item in data.iterate_items():
            lines.write(f"{json.dumps(item)}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("storage", choices=STORAGE)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--export", type=Path, metavar="FILE", help="of a finished crawl")
    options = parser.parse_args()
    service_locator.set_storage_client(STORAGE[options.storage]())
    asyncio.run(export(options.export) if options.export else crawl(options.concurrency))


if __name__ == "__main__":
    main()
