"""The example's spiders know nothing of shards: plain Scrapy runs each to the same items."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from shop import catalogue, open_shop

EXAMPLE = Path(__file__).parents[2] / "example_project"


@pytest.mark.parametrize("spider", ["products", "catalogue", "sitemap"])
def test_a_spider_brings_home_every_product_once_without_the_addon(
    spider: str, tmp_path: Path
) -> None:
    export, log = tmp_path / "items.jsonl", tmp_path / "access.jsonl"
    with open_shop("--products=120", f"--log={log}") as address:
        crawl(spider, "-a", f"shop_url={address}", "-O", str(export))
    items = [json.loads(line) for line in export.read_text().splitlines()]
    items.sort(key=lambda item: item["id"])
    assert items == [each.item for each in catalogue(120) if each.item]
    asked = [json.loads(line)["path"] for line in log.read_text().splitlines()]
    assert not [path for path in asked if path.startswith("/private")]


def test_products_can_be_named_one_by_one(tmp_path: Path) -> None:
    export = tmp_path / "items.jsonl"
    with open_shop("--products=20") as address:
        crawl("products", "-s", f"SHOP_URL={address}", "-a", "ids=3,17", "-O", str(export))
    items = [json.loads(line) for line in export.read_text().splitlines()]
    assert sorted(item["id"] for item in items) == [3, 17]


def crawl(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "scrapy", "crawl", *arguments, "-s", "ADDONS={}", "-L", "ERROR"],
        cwd=EXAMPLE,
        check=True,
        timeout=240,
    )
