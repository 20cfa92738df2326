from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.sharded import Crawl, sharded_crawl


@dataclass(frozen=True)
class Scale:
    """How much of a fault: enough to see it in the ordinary run, more with ``--long-faults``."""

    long: bool

    def times(self, number: int) -> int:
        return number * 10 if self.long else number


@pytest.fixture(scope="session")
def fault_scale(pytestconfig: pytest.Config) -> Scale:
    return Scale(pytestconfig.getoption("--long-faults"))


@pytest.fixture
def shop_options() -> tuple[str, ...]:
    """How the shop is started; a test may have its own."""
    return ()


@pytest.fixture
def sharded(tmp_path: Path, shop_options: tuple[str, ...]) -> Iterator[Crawl]:
    """A crawl of 300 products that is ready to be started."""
    with sharded_crawl(tmp_path, *shop_options) as crawl:
        yield crawl
