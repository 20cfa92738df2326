"""What the README shows, run word for word in a fresh copy of the project."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", ".tox", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "bench-data"
)


def command(name: str) -> str:
    """The one line of the README between the marks of *name*."""
    block = re.search(rf"<!-- {name} command -->\n```sh\n(.+)\n```\n<!-- end -->", README)
    assert block is not None, f"the README has no {name} command"
    return block[1]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fresh") / "scrapy-hexshard"
    shutil.copytree(ROOT, folder, ignore=LEFT_OUT)
    return folder


def run(line: str, folder: Path) -> str:
    ran = subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=800,
    )
    assert ran.returncode == 0, ran.stdout[-6000:]
    return ran.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_demo_command_sets_up_and_crawls_the_shop_exactly(copy: Path) -> None:
    printed = run(command("demo"), copy)
    assert "990 of 1000 products are in the export, each exactly once" in printed
    assert "10 have no page in the shop (http 404)" in printed


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_demo_is_as_exact_with_a_worker_killed_half_way(copy: Path) -> None:
    # Its set-up is that of the test before, if both run; it is in the line again if not.
    printed = run(f"{command('demo')} --kill", copy)
    assert re.search(r"Killed \d+, the worker of shard \d", printed)
    assert "990 of 1000 products are in the export, each exactly once" in printed


def test_the_test_command_of_the_readme_is_what_ci_runs() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "<!-- test command -->" in script
    assert command("test").endswith("-m pytest")
