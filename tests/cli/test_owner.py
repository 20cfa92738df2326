from __future__ import annotations

import io

from scrapy_hexshard.cli import main
from scrapy_hexshard.sharding import stable_owner


def test_each_key_is_shown_with_its_owner_and_canonical_form(capsys):
    assert main(["owner", "HTTP://Shop.example:80", " sku-1 ", "--shards", "4"]) == 0
    owners = [stable_owner(key, 4) for key in ("http://shop.example/", "sku-1")]
    assert capsys.readouterr().out == f"{owners[0]}\thttp://shop.example/\n{owners[1]}\tsku-1\n"


def test_keys_are_read_from_stdin(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("a\n\nb\n"))
    assert main(["owner", "-", "--shards", "2"]) == 0
    assert [line.split("\t")[1] for line in capsys.readouterr().out.splitlines()] == ["a", "b"]


def test_a_key_that_begins_with_a_dash_follows_two(capsys):
    assert main(["owner", "--shards", "1", "--", "-1"]) == 0
    assert capsys.readouterr().out == "0\t-1\n"


def test_an_invalid_key_is_refused(capsys):
    assert main(["owner", "", "--shards", "4"]) == 2
    assert "cannot be empty" in capsys.readouterr().err
