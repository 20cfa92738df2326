from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sharded import Crawl, sharded_crawl

# A run under nohup, or in the background of a script, ignores these, and so would every process it
# starts: the tests of stopping would wait for something that cannot happen.
for _number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(
            _number, signal.default_int_handler if _number is signal.SIGINT else signal.SIG_DFL
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long-faults", action="store_true", help="run the fault suite in its long form"
    )


@pytest.fixture
def shop_options() -> tuple[str, ...]:
    """How the shop is started; a test may have its own."""
    return ()


@pytest.fixture
def sharded(tmp_path: Path, shop_options: tuple[str, ...]) -> Iterator[Crawl]:
    """A crawl of 300 products by real workers that is ready to be started."""
    with sharded_crawl(tmp_path, *shop_options) as crawl:
        yield crawl
