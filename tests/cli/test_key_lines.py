from __future__ import annotations

import pytest

from scrapy_hexshard.cli.key_lines import lacks_scheme


@pytest.mark.parametrize(
    ("key", "lacking"),
    [
        ("shop.example/p/1", True),
        ("www.shop.example:8080/", True),
        ("//shop.example/p", True),
        ("https:shop.example/p", True),
        ("http:///shop.example/p", True),
        ("192.0.2.1/p", True),
        ("localhost:8000/p", True),
        ("münchen.example/p", True),
        ('"https://shop.example/p"', True),
        ("https://", True),
        ("https://shop.example/p", False),
        ("ftp://shop.example/p", False),
        ("https://shop/p", False),
        ("B0012345", False),
        ("sku.4711", False),
        ("1.5/2", False),
        ("rev.2/7", False),
        ("a/b", False),
        ("manual.pd", False),
    ],
)
def test_a_host_and_a_path_look_like_a_url_without_its_scheme(key: str, lacking: bool) -> None:
    assert lacks_scheme(key) is lacking
