from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sharded import Crawl, sharded_crawl


@pytest.fixture
def shop_options() -> tuple[str, ...]:
    """How the shop is started; a test may have its own."""
    return ()


@pytest.fixture
def sharded(tmp_path: Path, shop_options: tuple[str, ...]) -> Iterator[Crawl]:
    """A crawl of 300 products that is ready to be started."""
    with sharded_crawl(tmp_path, *shop_options) as crawl:
        yield crawl
