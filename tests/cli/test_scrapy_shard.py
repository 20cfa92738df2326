"""``scrapy shard``: the same commands under the name of Scrapy's own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def scrapy(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "scrapy", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(params=["outside a project", "inside a project"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "inside a project":
        (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = settings\n")
        (tmp_path / "settings.py").write_text('BOT_NAME = "shop"\n')
    return tmp_path


def test_a_crawl_is_loaded_and_looked_at(folder: Path) -> None:
    (folder / "urls.txt").write_text("https://shop.example/1\nA-1\n")

    loaded = scrapy(folder, "shard", "load", "crawl.sqlite3", "urls.txt", "--shards", "2")
    status = scrapy(folder, "shard", "status", "crawl.sqlite3", "--json")

    assert (loaded.returncode, loaded.stderr) == (0, "")
    assert loaded.stdout.startswith("2 added, 0 known, 0 invalid.\n")
    assert json.loads(status.stdout)["total"]["pending"] == 2


def test_the_command_of_the_workers_arrives_word_for_word(folder: Path) -> None:
    look = "import json, sys; print(json.dumps(sys.argv[1:]))"
    words = ["crawl", "--", "-a", "shard={shard}", "-s", "X=1", "--help", "-h", "--logfile=x"]

    result = scrapy(
        folder, "shard", "run", "--shards", "1", "--", sys.executable, "-c", look, *words
    )

    assert result.returncode == 0
    told = json.loads(result.stdout.removeprefix("[0] "))
    assert told == [word.format(shard=0) for word in words]


@pytest.mark.parametrize(
    ("words", "code", "stream", "begin"),
    [
        (["--version"], 0, "stdout", "0."),
        (["--help"], 0, "stdout", "usage: hexdigest-shard [-h]"),
        (["-h"], 0, "stdout", "usage: hexdigest-shard [-h]"),
        (["load", "-h"], 0, "stdout", "usage: hexdigest-shard load"),
        (["owner", "--shards", "1", "--", "-1"], 0, "stdout", "0\t-1\n"),
        ([], 2, "stderr", "usage: hexdigest-shard"),
        (["owner", "a", "--shards", "0"], 2, "stderr", "hexdigest-shard: The number of shards"),
    ],
)
def test_exit_codes_and_output_are_those_of_the_command(
    tmp_path: Path, words: list[str], code: int, stream: str, begin: str
) -> None:
    result: Any = scrapy(tmp_path, "shard", *words)

    assert result.returncode == code
    assert getattr(result, stream).startswith(begin)
    assert "Traceback" not in result.stderr


def test_scrapy_lists_it_and_imports_none_of_the_commands(folder: Path) -> None:
    look = (
        "import sys\nfrom scrapy.cmdline import execute\n"
        "try: execute(['scrapy'])\n"
        "except SystemExit: pass\n"
        "print(sorted(name for name in sys.modules if name.startswith('scrapy_hexshard')))"
    )
    result = subprocess.run(
        [sys.executable, "-c", look], cwd=folder, capture_output=True, text=True, check=True
    )

    assert "\n  shard         Crawl on shards" in result.stdout
    assert json.loads(result.stdout.splitlines()[-1].replace("'", '"')) == [
        "scrapy_hexshard",
        "scrapy_hexshard.components",
        "scrapy_hexshard.components.shard_command",
    ]
