"""The outcome tests again, on the default reactor and with no reactor at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.crawling import REACTORLESS
from support.processes import CAN_BE_REACTORLESS

TESTS = Path(__file__).parent
AGAIN = [
    "test_outcomes.py",
    "test_proxy_outcomes.py",
    "test_feeding.py",
    "test_feeds.py",
    "test_feed_waits.py",
    "test_links.py",
]


@pytest.mark.skipif(REACTORLESS, reason="this is such a run already")
@pytest.mark.parametrize(
    ("options", "environment"),
    [
        (["--reactor=default"], {}),
        (["-p", "no:twisted"], {"HEXSHARD_TEST_REACTORLESS": "1"}),
    ],
    ids=["default reactor", "no reactor"],
)
@pytest.mark.timeout(900)
def test_outcomes_are_the_same_on_another_event_loop(
    options: list[str], environment: dict[str, str], request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("reactor", "asyncio") != "asyncio":
        pytest.skip("this is such a run already")
    if environment and not CAN_BE_REACTORLESS:
        pytest.skip("this Scrapy cannot download without a reactor here")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-o", "addopts=--import-mode=importlib"]
    command += ["-p", "no:asyncio", "-p", "no:cacheprovider", *options]
    command += [str(TESTS / name) for name in AGAIN if (TESTS / name).exists()]
    ran = subprocess.run(
        command,
        cwd=TESTS.parents[1],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]
