from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from shop import open_shop
from support.sharded import Crawl


@pytest.fixture
def shop_options() -> tuple[str, ...]:
    """How the shop is started; a test may have its own."""
    return ()


@pytest.fixture
def sharded(tmp_path: Path, shop_options: tuple[str, ...]) -> Iterator[Crawl]:
    """A crawl of 300 products that is ready to be started."""
    log = f"--log={tmp_path / 'access.log'}"
    with open_shop("--products=300", log, *shop_options) as address:
        crawl = Crawl(tmp_path, address, 300)
        yield crawl
        crawl.close()
