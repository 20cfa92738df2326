from __future__ import annotations

import pytest

from scrapy_hexshard.cli import main


def test_the_command_must_follow_two_dashes(capsys):
    assert main(["run", "--shards", "2"]) == 2
    assert main(["run", "--shards", "2", "--"]) == 2
    assert capsys.readouterr().err.count("after --") == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--grace", "-1"], "not a number of seconds"),
        (["--grace", "soon"], "not a number of seconds"),
        (["--grace", "inf"], "not a number of seconds"),
        (["--max-restarts", "-1"], "not a whole number"),
        (["--max-restarts", "x"], "not a whole number"),
        (["--shards", "x"], "invalid int value"),
        (["--stagger", "-1"], "not a number of seconds"),
        (["--stall-timeout", "1"], "is too short"),
        (["--log-size", "50 MB"], "is no size such as"),
        (["--log-keep", "-1"], "not a whole number"),
    ],
)
def test_impossible_options_are_usage_errors(words, says, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["run", "--shards", "2", *words, "--", "true"])
    assert caught.value.code == 2
    assert says in capsys.readouterr().err


def test_an_invalid_proxy_is_refused_without_showing_it(capsys, monkeypatch):
    monkeypatch.setenv("PROXY_URL_1", "http://somebody:hushhush@host:0")
    assert main(["run", "--shards", "2", "--", "true"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("hexdigest-shard: PROXY_URL_1 has an impossible port")
    assert "hushhush" not in said
    assert "somebody" not in said


def test_a_required_proxy_that_is_missing_is_an_error(capsys, monkeypatch):
    monkeypatch.delenv("PROXY_URL_0", raising=False)
    assert main(["run", "--shards", "1", "--require-proxy", "--", "true"]) == 2
    assert "none for shard 0: set PROXY_URL_<shard>." in capsys.readouterr().err


def test_a_dry_run_prints_the_commands(capsys, monkeypatch):
    monkeypatch.delenv("PROXY_URL_0", raising=False)
    assert main(["run", "--shards", "1", "--dry-run", "--", "no-such", "{shard}", "a b"]) == 0
    assert (
        capsys.readouterr().out
        == "[0] CRAWL_SHARD=0 CRAWL_SHARDS=1 PROXY_URL=<none> no-such 0 'a b'\n"
    )
