"""``hexdigest-shard --print-completion``, as a shell takes it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scrapy_hexshard.cli import COMMANDS, main

pytest.importorskip("shtab")

COMPLETE = """
source "$1"
shift
function=$(complete -p hexdigest-shard | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
COMP_WORDS=(hexdigest-shard "$@")
COMP_CWORD=$#
$function
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "hexdigest-shard.bash"
    command = [sys.executable, "-m", "scrapy_hexshard", "--print-completion", "bash"]
    path.write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return path


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (("",), COMMANDS),
        (("lo",), ("load",)),
        (("load", "--pay"), ("--payload-field",)),
        (("load", "s.sqlite3", "--format", ""), ("lines", "csv", "jsonl")),
        (("plan", "--js"), ("--json",)),
        (("run", "--log-d"), ("--log-dir",)),
        (("export", "crawl"), ("crawl.sqlite3",)),
    ],
)
def test_bash_completes(
    script: Path, tmp_path: Path, words: tuple[str, ...], completed: tuple[str, ...]
) -> None:
    (tmp_path / "crawl.sqlite3").touch()
    result = subprocess.run(
        ["bash", "-c", COMPLETE, "bash", script, *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert result.stderr == ""
    assert set(result.stdout.split()) >= set(completed)
    if words != ("",):
        assert len(result.stdout.split()) == len(completed)


def test_zsh_is_told_of_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--print-completion", "zsh"])

    assert end.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith("#compdef hexdigest-shard\n")
    for command in COMMANDS:
        assert re.search(rf"\b{command}:'?\w", out), f"{command} without what it does"
    if shell := shutil.which("zsh"):
        subprocess.run([shell, "-n"], input=out, text=True, check=True)


def test_without_shtab_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "shtab.py").write_text("raise ImportError")
    result = subprocess.run(
        [sys.executable, "-m", "scrapy_hexshard", "--print-completion", "bash"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("hexdigest-shard: Completion needs shtab")
    assert "scrapy-hexshard[completion]" in result.stderr
    assert result.stderr.count("\n") == 1
