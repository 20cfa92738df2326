from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes import Project

ORIGIN = Path(__file__).parents[1] / "support" / "origin.py"


@pytest.fixture(scope="session")
def origin() -> Iterator[str]:
    """The address of a loopback origin with a page for every way a request can end."""
    with subprocess.Popen(
        [sys.executable, str(ORIGIN)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.stdin.close()
        process.wait(10)


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    return tmp_path / "crawl.sqlite3"


@pytest.fixture
def project(tmp_path: Path, origin: str) -> Iterator[Project]:
    """A folder to make a Scrapy project in; what still runs in the end is killed."""
    made = Project(tmp_path, origin)
    yield made
    made.stop_all()
