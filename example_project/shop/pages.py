"""Every page of the shop as the bytes of its answer. Pure: a path in, a page out."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from shop.catalogue import CATEGORIES, Product, catalogue, product

if TYPE_CHECKING:
    from collections.abc import Iterable

HTML = "text/html; charset=utf-8"
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
XML = "application/xml"
PRODUCTS_PER_PAGE = 20
ABOUT = "Made to be found, weighed and listed; not for sale. " * 12


@dataclass(frozen=True, slots=True)
class Page:
    """A finished answer, and how the shop behaves when it is asked for it."""

    status: int
    head: bytes
    body: bytes
    refusals: int = 0  # so many first requests are answered with the status below
    refusal_status: int = 503
    delay: float = 0.0  # seconds


def plain_page(body: str, kind: str = HTML, status: int = 200, headers: str = "") -> Page:
    data = body.encode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{headers}"
        f"Content-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return Page(status, head.encode(), data)


def error_page(status: int) -> Page:
    return plain_page(HTTPStatus(status).phrase, TEXT, status)


class Pages:
    """The pages of a shop at *base*, its address without a final slash."""

    def __init__(self, products: int, seed: int, base: str, reviews_fail_first: int = 0) -> None:
        self._products = products
        self._seed = seed
        self._base = base
        self._reviews_fail_first = reviews_fail_first
        self._single = {
            "/": self._home,
            "/robots.txt": self._robots,
            "/products.txt": self._listing,
            "/sitemap.xml": self._sitemap,
            "/truth.json": self._truth,
            "/private/stock": self._private,
        }
        self._of_product = {
            "/p": self._product,
            "/item": self._moved_product,
            "/api/price": self._price,
            "/api/reviews": self._reviews,
        }

    def page(self, target: str) -> Page:
        """The page at *target*, a path with its query; a 404 where there is none."""
        if single := self._single.get(target):
            return single()
        path, _, query = target.partition("?")
        kind, _, name = path.rpartition("/")
        if kind == "/c":
            return self._category(name, query)
        found = self._find(name.rpartition("-")[2])
        if kind in self._of_product and found and not found.missing:
            return self._of_product[kind](found, name)
        return error_page(404)

    def _find(self, number: str) -> Product | None:
        exists = number.isascii() and number.isdigit() and 1 <= int(number) <= self._products
        return product(int(number), self._seed) if exists else None

    def _home(self) -> Page:
        links = [f'<a href="/c/{n}?page=1">{name}</a>' for n, name in enumerate(CATEGORIES)]
        return html("The shop", f'{lines(links)}<a href="/private/stock">For our staff</a>')

    def _robots(self) -> Page:
        rules = f"User-agent: *\nDisallow: /private/\nSitemap: {self._base}/sitemap.xml\n"
        return plain_page(rules, TEXT)

    def _private(self) -> Page:
        return html("Stock", "No crawler that keeps to robots.txt reads this.")

    def _urls(self) -> Iterable[str]:
        return (f"{self._base}/p/{number}" for number in range(1, self._products + 1))

    def _listing(self) -> Page:
        return plain_page(lines(self._urls()), TEXT)

    def _sitemap(self) -> Page:
        entries = lines(f"<url><loc>{url}</loc></url>" for url in self._urls())
        namespace = "http://www.sitemaps.org/schemas/sitemap/0.9"
        return plain_page(f'<urlset xmlns="{namespace}">\n{entries}</urlset>\n', XML)

    def _truth(self) -> Page:
        truth = [
            {"url": url, "outcome": each.outcome, "item": each.item}
            for url, each in zip(self._urls(), catalogue(self._products, self._seed), strict=True)
        ]
        return plain_page(json.dumps(truth), JSON)

    def _category(self, number: str, query: str) -> Page:
        """Page k of a category; the last one has no link to a next one."""
        wanted = parse_qs(query).get("page", ["1"])[0]
        if number not in map(str, range(len(CATEGORIES))) or not wanted.isdecimal():
            return error_page(404)
        category, page = int(number), int(wanted)
        first = category or len(CATEGORIES)
        numbers = range(first, self._products + 1, len(CATEGORIES))
        shown = numbers[(page - 1) * PRODUCTS_PER_PAGE : page * PRODUCTS_PER_PAGE]
        if page < 1 or (page > 1 and not shown):
            return error_page(404)
        links = [f'<a href="/p/{n}">{product(n, self._seed).name}</a>' for n in shown]
        if len(numbers) > page * PRODUCTS_PER_PAGE:
            links.append(f'<a rel="next" href="/c/{category}?page={page + 1}">More</a>')
        return html(CATEGORIES[category], lines(links))

    def _product(self, found: Product, name: str) -> Page:
        if name != str(found.id):
            return error_page(404)
        if found.moved:
            return plain_page("", TEXT, 301, f"Location: /item/{found.slug}\r\n")
        return product_page(found)

    def _moved_product(self, found: Product, name: str) -> Page:
        return product_page(found) if found.moved and name == found.slug else error_page(404)

    def _price(self, found: Product, _name: str) -> Page:
        offer = {"id": found.id, "price": found.price, "stock": found.stock}
        return replace(plain_page(json.dumps(offer), JSON), refusals=found.price_refusals)

    def _reviews(self, found: Product, _name: str) -> Page:
        reviews = [{"author": author, "stars": stars} for author, stars in found.reviews]
        page = plain_page(json.dumps({"id": found.id, "reviews": reviews}), JSON)
        return replace(page, refusals=self._reviews_fail_first, refusal_status=500)


def product_page(found: Product) -> Page:
    page = html(
        found.name,
        f'<main data-product="{found.id}"><p>{ABOUT}</p>\n'
        f'<a class="category" href="/c/{found.category}?page=1">{CATEGORIES[found.category]}</a>\n'
        f'<a class="price" href="/api/price/{found.id}">Price</a>\n'
        f'<a class="reviews" href="/api/reviews/{found.id}">Reviews</a></main>\n',
    )
    return replace(page, refusals=found.page_refusals, delay=found.delay)


def html(title: str, body: str) -> Page:
    return plain_page(
        f"<!doctype html>\n<html lang=en><head><title>{title}</title></head>\n"
        f"<body><h1>{title}</h1>\n{body}</body></html>\n"
    )


def lines(texts: Iterable[str]) -> str:
    return "".join(f"{text}\n" for text in texts)
