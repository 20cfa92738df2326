from __future__ import annotations

import subprocess
import sys

from scrapy_hexshard.cli import main
from scrapy_hexshard.sharding import stable_owner


def test_each_key_is_shown_with_its_owner_and_canonical_form(capsys):
    assert main(["owner", "HTTP://Shop.example:80", " sku-1 ", "--shards", "4"]) == 0
    owners = [stable_owner(key, 4) for key in ("http://shop.example/", "sku-1")]
    assert capsys.readouterr().out == f"{owners[0]}\thttp://shop.example/\n{owners[1]}\tsku-1\n"


def owners_of(stdin):
    command = [sys.executable, "-m", "scrapy_hexshard", "owner", "-", "--shards", "2"]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=60)


def test_keys_are_read_from_stdin_as_load_reads_them():
    result = owners_of("\ufeffa\n\n# a comment\nb\u00e9\n".encode())
    keys = [line.split("\t")[1] for line in result.stdout.decode().splitlines()]
    assert (result.returncode, keys) == (0, ["a", "b\u00e9"])


def test_a_line_of_stdin_that_is_no_key_is_named():
    result = owners_of(b"a\n\xff\n")
    assert result.returncode == 2
    assert result.stderr.startswith(b"hexdigest-shard: Line 2: Not UTF-8 text")


def test_closed_stdin_is_said_in_a_sentence(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    assert main(["owner", "-", "--shards", "2"]) == 2
    assert "Cannot read -: it is closed." in capsys.readouterr().err


def test_a_key_that_begins_with_a_dash_follows_two(capsys):
    assert main(["owner", "--shards", "1", "--", "-key"]) == 0
    assert capsys.readouterr().out == "0\t-key\n"


def test_an_invalid_key_is_refused(capsys):
    assert main(["owner", "", "--shards", "4"]) == 2
    assert "cannot be empty" in capsys.readouterr().err
