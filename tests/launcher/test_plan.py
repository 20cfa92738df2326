from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_hexshard.errors import LaunchError, SettingError, ShardError
from scrapy_hexshard.launcher.plan import fill, make_plan, shard_names

COMMAND = ("scrapy", "crawl", "x")
NO_BRACES = st.text(st.characters(exclude_characters="{}"))


@pytest.mark.parametrize(
    ("argument", "filled"),
    [
        ("shard={shard}", "shard=2"),
        ("{shard}/{shards}", "2/4"),
        ("{{shard}} {{shards}}", "{shard} {shards}"),
        ('{"a": {"{shard}.json": {}}}', '{"a": {"2.json": {}}}'),
        (
            "{} {0} {x} {shard!r} {Shard} { shard } {shard",
            "{} {0} {x} {shard!r} {Shard} { shard } {shard",
        ),
        ("%s %(shard)s $shard ${shard}", "%s %(shard)s $shard $2"),
    ],
)
def test_only_the_two_placeholders_are_replaced(argument, filled):
    assert fill(argument, 2, 4) == filled


@given(st.dictionaries(NO_BRACES, st.dictionaries(NO_BRACES, NO_BRACES)))
def test_json_survives(document):
    text = json.dumps(document)
    assert fill(text, 2, 4) == text


@given(st.lists(NO_BRACES, min_size=1, max_size=6))
def test_each_placeholder_becomes_its_number_and_what_is_around_it_stays(pieces):
    assert fill("{shard}".join(pieces), 2, 4) == "2".join(pieces)
    assert fill("{{shard}}".join(pieces), 2, 4) == "{shard}".join(pieces)


def test_a_plan_has_one_process_per_shard():
    plan = make_plan(("run", "{shard}"), 3, {"PATH": "/bin"})
    assert [spec.argv for spec in plan.specs] == [("run", "0"), ("run", "1"), ("run", "2")]
    assert plan.specs[1].environ == {"PATH": "/bin", "CRAWL_SHARD": "1", "CRAWL_SHARDS": "3"}


def test_no_command_and_impossible_counts_are_refused():
    with pytest.raises(LaunchError, match="after --"):
        make_plan((), 2, {})
    for count in (0, -1, 100_000):
        with pytest.raises(ShardError):
            make_plan(COMMAND, count, {})


def test_a_required_proxy_that_is_missing_is_named():
    environ = {"PROXY_URL_1": "http://h:1", "PROXY_URL_2": "  "}
    with pytest.raises(SettingError, match=r"not set: PROXY_URL_0, PROXY_URL_2\."):
        make_plan(COMMAND, 3, environ, require_proxy=True)
    make_plan(COMMAND, 1, {"PROXY_URL_0": "http://h:1"}, require_proxy=True)


@pytest.mark.parametrize(
    ("environ", "inherit", "notices"),
    [
        ({}, False, ["Without a proxy: shards 0-2."]),
        ({f"PROXY_URL_{shard}": "http://h:1" for shard in range(3)}, False, []),
        ({"PROXY_URL_1": "http://h:1"}, False, ["Without a proxy: shards 0, 2."]),
        ({"all_proxy": "x"}, True, []),
        (
            {"all_proxy": "x"},
            False,
            [
                "all_proxy kept from the workers; --inherit-proxy hands them on.",
                "Without a proxy: shards 0-2.",
            ],
        ),
        (
            {"PROXY_URL_3": "nonsense", "PROXY_URL_01": "nonsense"},
            False,
            [
                "Without a proxy: shards 0-2.",
                "PROXY_URL_01, PROXY_URL_3 not used: the shards go from 0 to 2.",
            ],
        ),
    ],
)
def test_what_the_user_should_know_is_said(environ, inherit, notices):
    assert list(make_plan(COMMAND, 3, environ, inherit_proxy=inherit).notices) == notices


def test_no_proxy_is_in_the_repr_or_description_of_a_plan():
    environ = {
        "PROXY_URL_0": "http://somebody:hushhush@proxy.example:1",
        "HTTP_PROXY": "http://me:whisper@h:1",
    }
    plan = make_plan(
        ("x", "--proxy=http://somebody:hushhush@proxy.example:1"), 1, environ, inherit_proxy=True
    )
    assert plan.specs[0].environ["PROXY_URL"].endswith(":1")
    shown = repr(plan) + plan.specs[0].describe()
    assert "PROXY_URL=<set> x --proxy=***" in shown
    for secret in ("whisper", "me:whisper"):
        assert secret not in shown
    assert "hushhush" not in plan.specs[0].describe()


def test_a_dry_run_hides_the_secrets_of_every_shard_in_every_line() -> None:
    environ = {"PROXY_URL_1": "http://joe:hushhush@h:1"}
    plan = make_plan(("curl", "-x", "http://joe:hushhush@h:1"), 2, environ)
    assert "hushhush" not in plan.describe()
    assert plan.describe().count("curl") == 2


@pytest.mark.parametrize(
    ("shards", "named"),
    [
        ([3], "shard 3"),
        ([0, 1, 2, 3], "shards 0-3"),
        ([7, 0, 1, 5], "shards 0-1, 5, 7"),
        ([1, 3], "shards 1, 3"),
    ],
)
def test_shards_are_named_in_ranges(shards, named):
    assert shard_names(shards) == named
