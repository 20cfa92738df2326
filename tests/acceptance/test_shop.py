"""The bundled shop keeps its word: what it says of a product is what its pages show."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from shop import Product, ShopError, catalogue, open_shop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EXAMPLE = Path(__file__).parents[2] / "example_project"


@contextmanager
def client(address: str) -> Iterator[HTTPConnection]:
    connection = HTTPConnection(address.removeprefix("http://"), timeout=60)
    try:
        yield connection
    finally:
        connection.close()


def ask(connection: HTTPConnection, path: str, method: str = "GET") -> tuple[int, str, str]:
    """Status, body, and the place a redirect leads to."""
    connection.request(method, path)
    response = connection.getresponse()
    return response.status, response.read().decode(), response.headers.get("Location", "")


def ask_until_well(connection: HTTPConnection, path: str) -> str:
    for _ in range(10):
        status, body, location = ask(connection, path)
        if status == 301:
            path = location
        elif status == 200:
            return body
    raise AssertionError(f"{path} does not heal")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with open_shop("--products=300") as address:
        yield address


@pytest.fixture
def connection(address: str) -> Iterator[HTTPConnection]:
    with client(address) as connection:
        yield connection


def first(condition: Callable[[Product], object]) -> Product:
    return next(each for each in catalogue(300) if condition(each))


def test_a_catalogue_is_the_same_for_its_seed_and_grows_at_its_end() -> None:
    assert catalogue(50, seed=3) == catalogue(80, seed=3)[:50]
    assert catalogue(50, seed=3) != catalogue(50, seed=4)


def test_a_thousand_products_have_every_fault_and_one_missing_in_each_hundred() -> None:
    products = catalogue(1000)
    for fault in ("moved", "page_refusals", "price_refusals", "delay"):
        assert 5 <= sum(bool(getattr(each, fault)) for each in products) <= 100, fault
    assert sum(each.missing for each in products) == 10
    assert all(each.outcome == "http 404" for each in products if each.missing)
    assert max(each.page_refusals for each in products) == 2  # what Scrapy's own retries outlast


def test_the_list_names_every_product_once(address: str, connection: HTTPConnection) -> None:
    expected = [f"{address}/p/{number}" for number in range(1, 301)]
    assert ask(connection, "/products.txt")[1].split() == expected
    assert re.findall("<loc>(.*?)</loc>", ask(connection, "/sitemap.xml")[1]) == expected


def test_truth_is_what_the_catalogue_says(address: str, connection: HTTPConnection) -> None:
    assert json.loads(ask(connection, "/truth.json")[1]) == [
        {"url": f"{address}/p/{each.id}", "outcome": each.outcome, "item": each.item}
        for each in catalogue(300)
    ]


def test_pages_show_what_the_catalogue_says(connection: HTTPConnection) -> None:
    shown: dict[int, dict[str, Any]] = {}
    for each in catalogue(300)[:120]:
        if each.missing:
            assert ask(connection, f"/p/{each.id}")[0] == 404
            continue
        page = ask_until_well(connection, f"/p/{each.id}")
        price = json.loads(ask_until_well(connection, f"/api/price/{each.id}"))
        reviews = json.loads(ask_until_well(connection, f"/api/reviews/{each.id}"))["reviews"]
        stars = [review["stars"] for review in reviews]
        shown[each.id] = {
            "id": int(re.findall('data-product="(.*?)"', page)[0]),
            "name": re.findall("<h1>(.*?)</h1>", page)[0],
            "category": re.findall('class="category" href=".*?">(.*?)<', page)[0],
            "price": price["price"],
            "stock": price["stock"],
            "reviews": len(stars),
            "rating": round(sum(stars) / len(stars), 2) if stars else None,
        }
    assert shown == {each.id: each.item for each in catalogue(300)[:120] if not each.missing}


def test_categories_lead_to_every_product_once(connection: HTTPConnection) -> None:
    found: dict[int, list[int]] = {category: [] for category in range(9)}
    waiting = re.findall('href="(/c/.*?)"', ask(connection, "/")[1])
    while waiting:
        path = waiting.pop()
        page = ask(connection, path)[1]
        found[int(path[3])] += map(int, re.findall('href="/p/(.*?)"', page))
        waiting += re.findall('rel="next" href="(.*?)"', page)
    assert found == {
        category: [each.id for each in catalogue(300) if each.category == category]
        for category in range(9)
    }


def test_a_refused_page_heals_after_its_refusals() -> None:
    ill = first(lambda each: each.page_refusals == 2 and not (each.moved or each.missing))
    cheap = first(lambda each: each.price_refusals and not each.missing)
    with open_shop("--products=300") as address, client(address) as connection:
        asked = [f"/p/{ill.id}"] * 4 + [f"/api/price/{cheap.id}"] * 3
        statuses = [ask(connection, path)[0] for path in asked]
    assert statuses == [503, 503, 200, 200, 503, 200, 200]


def test_a_moved_product_is_found_at_its_new_address_only(connection: HTTPConnection) -> None:
    moved = first(lambda each: each.moved and not each.missing and not each.page_refusals)
    assert ask(connection, f"/p/{moved.id}")[::2] == (301, f"/item/{moved.slug}")
    assert ask(connection, f"/item/{moved.slug}")[0] == 200
    stayed = first(lambda each: not each.moved and not each.missing)
    assert ask(connection, f"/item/{stayed.slug}")[0] == 404
    assert ask(connection, f"/item/other-{moved.id}")[0] == 404


@pytest.mark.parametrize(
    "path",
    [
        *("/p/0", "/p/301", "/p/01", "/p/x-1", "/p/", "/p", "/p/1/2", "/p/%C2%B2", "//p/1"),
        *("/c/9", "/c/1?page=0", "/c/1?page=99", "/c/1?page=x", "/c/"),
        *("/api/price/301", "/api/stock/1", "/item/", "/nothing"),
    ],
)
def test_there_is_no_other_page(connection: HTTPConnection, path: str) -> None:
    assert ask(connection, path)[0] == 404


def test_robots_are_kept_out_of_the_private_part_only(
    address: str, connection: HTTPConnection
) -> None:
    rules = ask(connection, "/robots.txt")[1]
    assert "Disallow: /private/" in rules
    assert f"Sitemap: {address}/sitemap.xml" in rules
    assert ask(connection, "/private/stock")[0] == 200


def test_one_connection_serves_many_requests(connection: HTTPConnection) -> None:
    ask(connection, "/robots.txt")
    used = connection.sock
    assert ask(connection, "/products.txt")[0] == 200
    assert connection.sock is used


def talk(address: str, data: bytes) -> bytes:
    """Everything the shop answers to *data* until it hangs up."""
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as peer:
        peer.sendall(data)
        return b"".join(iter(lambda: peer.recv(65536), b""))


def test_the_answer_to_head_has_no_body(address: str) -> None:
    answer = talk(address, b"HEAD /robots.txt HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n")


def test_a_slow_answer_keeps_its_place_among_requests_sent_together(address: str) -> None:
    slow = first(lambda each: each.delay and not (each.missing or each.moved or each.page_refusals))
    asked = [f"GET /p/{slow.id} HTTP/1.1", "GET /robots.txt HTTP/1.1\r\nConnection: close"]
    answer = talk(address, "".join(f"{head}\r\n\r\n" for head in asked).encode()).decode()
    assert answer.index(slow.name) < answer.index("Disallow")


@pytest.mark.parametrize(
    ("data", "status"),
    [(b"POST / HTTP/1.1\r\n\r\nx", b"405"), (b"\xff\r\n\r\n", b"400"), (b"x" * 70_000, b"")],
)
def test_what_it_cannot_serve_ends_the_connection(address: str, data: bytes, status: bytes) -> None:
    try:
        answer = talk(address, data)
    except ConnectionResetError:
        answer = b""
    assert answer[9:12] == status


def test_every_request_is_one_line_of_the_access_log(tmp_path: Path) -> None:
    log = tmp_path / "access.jsonl"
    with open_shop("--products=5", f"--log={log}") as address, client(address) as connection:
        ask(connection, "/p/5000")
        ask(connection, "/c/1?page=1", "HEAD")
        assert connection.sock
        peer = connection.sock.getsockname()[1]
        # Read while the shop is open: nothing waits in a buffer.
        entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(e["method"], e["path"], e["status"], e["peer"]) for e in entries] == [
        ("GET", "/p/5000", 404, peer),
        ("HEAD", "/c/1?page=1", 200, peer),
    ]
    assert entries[0]["time"] <= entries[1]["time"]


def test_reviews_fail_as_often_as_asked_for_each_product() -> None:
    shop = open_shop("--products=2", "--reviews-fail-first=4")
    with shop as address, client(address) as connection:
        for number in (1, 2):
            statuses = [ask(connection, f"/api/reviews/{number}")[0] for _ in range(6)]
            assert statuses == [500, 500, 500, 500, 200, 200]


def test_a_delay_holds_every_answer_back() -> None:
    with open_shop("--products=2", "--delay=30") as address:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=0.5) as peer:
            peer.sendall(b"GET /robots.txt HTTP/1.1\r\n\r\n")
            with pytest.raises(TimeoutError):
                peer.recv(1)


def test_a_port_can_be_given_and_a_taken_one_is_refused(
    address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    port = address.rpartition(":")[2]
    with pytest.raises(ShopError, match=port), open_shop(f"--port={port}"):
        pass
    assert capfd.readouterr().err.startswith("The shop cannot open: ")


@contextmanager
def start_shop(stdin: int) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "shop", "--products=1", "--until-stdin-closes"],
        cwd=EXAMPLE,
        stdin=stdin,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout
            assert process.stdout.readline().startswith("http://127.0.0.1:")
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_closes_the_shop(number: signal.Signals) -> None:
    with start_shop(subprocess.PIPE) as process:
        process.send_signal(number)
        assert process.wait(60) == 0


def test_the_shop_closes_when_nobody_holds_its_stdin() -> None:
    reader, writer = os.pipe()
    with start_shop(reader) as process:
        os.close(reader)
        assert process.poll() is None
        os.close(writer)
        assert process.wait(60) == 0
