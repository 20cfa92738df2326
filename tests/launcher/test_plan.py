from __future__ import annotations

import importlib
import json
import os
import traceback
from unittest import mock
from urllib.request import getproxies_environment

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_hexshard.errors import LaunchError, SettingError, ShardError
from scrapy_hexshard.launcher.ambient_proxies import proxied_schemes
from scrapy_hexshard.launcher.placeholders import fill, has_shard
from scrapy_hexshard.launcher.plan import make_plan, shard_names

COMMAND = ("scrapy", "crawl", "x")
READ = (
    "what is read is PROXY_URL_<shard>, PROXY_URL_FILE_<shard>, PROXY_URL_TEMPLATE and "
    "PROXY_URL_TEMPLATE_FILE."
)
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


@pytest.mark.parametrize(
    ("text", "differs"),
    [("x-{shard}", True), ("{shards}", False), ("{{shard}}", False), ("{Shard}", False)],
)
def test_a_text_with_the_shard_in_it_is_another_one_for_each(text, differs):
    assert has_shard(text) is differs
    assert (fill(text, 0, 4) != fill(text, 1, 4)) is differs


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
    with pytest.raises(SettingError, match=r"there is none for shards 0, 2-99: set PROXY_URL_"):
        make_plan(COMMAND, 100, environ, require_proxy=True)
    make_plan(COMMAND, 1, {"PROXY_URL_0": "http://h:1"}, require_proxy=True)


@pytest.mark.parametrize(
    ("environ", "inherit", "notices"),
    [
        ({}, False, ["Without a proxy: shards 0-2."]),
        ({f"PROXY_URL_{shard}": f"http://h:{shard + 1}" for shard in range(3)}, False, []),
        ({"PROXY_URL_1": "http://h:1"}, False, ["Without a proxy: shards 0, 2."]),
        (
            {"all_proxy": "x", "ftp_proxy": "x"},
            True,
            ["all_proxy, ftp_proxy handed on to the workers.", "Without a proxy: shards 0-2."],
        ),
        (
            {"https_proxy": "x", "PROXY_URL_0": "http://h:1"},
            True,
            [
                "https_proxy handed on to the workers.",
                "Without a proxy for http:// pages: shards 1-2.",
            ],
        ),
        (
            {"HTTP_PROXY": "x", "https_proxy": "x"},
            True,
            ["HTTP_PROXY, https_proxy handed on to the workers."],
        ),
        ({"HTTPS_PROXY": "", "PROXY_URL": " "}, True, ["Without a proxy: shards 0-2."]),
        (
            {"HTTPS_PROXY": "", "PROXY_URL_7": "", "PROXY_URL_X": " "},
            False,
            ["Without a proxy: shards 0-2."],
        ),
        (
            {"PROXY_URL": "http://h:1", "HTTP_PROXY": "x", "PROXY_URL_1": "http://h:2"},
            True,
            [
                "HTTP_PROXY, PROXY_URL handed on to the workers.",
                "One proxy for several shards: shards 0, 2.",
            ],
        ),
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
                "PROXY_URL_3 not used: the shards go from 0 to 2.",
                f"PROXY_URL_01 not used: {READ}",
            ],
        ),
        (
            {f"PROXY_URL_FILE_{'9' * 5000}": "x", "PROXY_URL_FILE": "x"},
            False,
            [
                "Without a proxy: shards 0-2.",
                f"PROXY_URL_FILE_{'9' * 5000} not used: the shards go from 0 to 2.",
                f"PROXY_URL_FILE not used: {READ}",
            ],
        ),
        (
            {
                "PROXY_URL_TEMPLATE": "nonsense",
                **{f"PROXY_URL_{shard}": f"http://h:{shard + 1}" for shard in range(3)},
            },
            False,
            ["PROXY_URL_TEMPLATE not used: every shard has a proxy of its own."],
        ),
        ({"PROXY_URL_TEMPLATE": "http://user-{shard}:pass@h:1"}, False, []),
        (
            {"PROXY_URL_TEMPLATE": "http://u-{{shard}}:pass@h:1", "PROXY_URL_0": "http://h:1"},
            False,
            ["No {shard} in PROXY_URL_TEMPLATE, so that one proxy serves: shards 1-2."],
        ),
        (
            {"PROXY_URL_TEMPLATE": "http://h:1", "PROXY_URL_0": "http://H"},
            False,
            [
                "No {shard} in PROXY_URL_TEMPLATE, so that one proxy serves: shards 1-2.",
            ],
        ),
    ],
)
def test_what_the_user_should_know_is_said(environ, inherit, notices):
    assert list(make_plan(COMMAND, 3, environ, inherit_proxy=inherit).notices) == notices


def notices(*urls: str, **environ: str) -> list[str]:
    """Those of a plan with these proxies."""
    environ |= {f"PROXY_URL_{shard}": url for shard, url in enumerate(urls)}
    return list(make_plan(COMMAND, len(urls), environ).notices)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://[2001:db8::{}]:8080", "An IPv6 address as proxy, which Scrapy's default"),
        ("https://h{}", "An https:// proxy, which Scrapy's default download handler uses for"),
        ("socks5://h{}", "A SOCKS proxy, which needs a download handler that knows SOCKS"),
        ("socks5h://h{}", "A SOCKS proxy, which needs a download handler that knows SOCKS"),
        (
            "http://user:pässword{}@h",
            "Credentials that are not ASCII, which Scrapy sends in Latin-1",
        ),
        ("http://user%E2%82%AC:@h{}", "Credentials that are not ASCII, which Scrapy sends in"),
    ],
)
def test_what_scrapy_cannot_do_with_every_proxy_is_said_once(url, says):
    one, other = url.format(1), url.format(2)
    assert [notice.startswith(says) for notice in notices("http://a", one, other)] == [True]
    assert notices("http://a", one, other)[0].endswith(": shards 1-2.")
    assert notices(one)[0].endswith(": shard 0.")


def test_the_handler_that_a_notice_names_is_there_to_use():
    (notice,) = notices("socks5://h")
    module, _, name = notice.partition("such as ")[2].split()[0].rpartition(".")
    assert name in vars(importlib.import_module(module))


def test_shards_that_share_a_proxy_are_named_in_groups():
    found = notices("http://a", "http://bees:@h", "http://A:80/", "http://c", "http://%62ees:@h")
    assert found == ["One proxy for several shards: shards 0, 2; shards 1, 4."]


def test_files_that_others_can_read_are_named(tmp_path):
    for name, mode in [("own", 0o600), ("open", 0o644)]:
        (tmp_path / name).write_text("http://h-{shard}")
        (tmp_path / name).chmod(mode)
    environ = {f"PROXY_URL_{shard}": f"http://h:{shard + 1}" for shard in range(3)}
    environ["PROXY_URL_TEMPLATE_FILE"] = str(tmp_path / "open")
    environ["PROXY_URL_4"] = "http://h"
    (tmp_path / "open-one").write_text("http://user:@h")
    (tmp_path / "open-one").chmod(0o604)
    environ["PROXY_URL_FILE_5"] = str(tmp_path / "open-one")
    says = "Others can read the file that PROXY_URL_{} names; chmod 600 mends that: shard {}."
    assert set(make_plan(COMMAND, 6, environ).notices) == {
        says.format("FILE_<shard>", 5),
        says.format("TEMPLATE_FILE", 3),
    }
    del environ["PROXY_URL_FILE_5"]
    environ["PROXY_URL_TEMPLATE_FILE"] = str(tmp_path / "own")
    assert not make_plan(COMMAND, 6, environ).notices


@pytest.mark.parametrize("inherit", [False, True])
@pytest.mark.parametrize("name", ["HTTP_PROXY", "https_proxy", "MY_PROXY"])
def test_a_proxy_on_which_scrapy_would_fail_is_refused_if_a_worker_would_get_it(name, inherit):
    environ = {name: "http://hushhush@h:1", "ALL_PROXY": "http://user:@h"}
    if not inherit and name != "MY_PROXY":
        make_plan(COMMAND, 1, environ)
        return
    with pytest.raises(SettingError, match=f"^{name}: a user name without a password") as caught:
        make_plan(COMMAND, 1, environ, inherit_proxy=inherit)
    assert "hush" not in "".join(traceback.format_exception(caught.value))


def test_an_inherited_proxy_is_checked_like_all_others():
    environ = {"PROXY_URL": "user:hushhush@h"}
    make_plan(COMMAND, 1, environ)
    with pytest.raises(SettingError, match=r"^PROXY_URL has no scheme") as caught:
        make_plan(COMMAND, 1, environ, inherit_proxy=True)
    assert "hush" not in str(caught.value)


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
    for secret in ("whisper", "me:whisper", "hushhush", "somebody"):
        assert secret not in shown


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


@given(
    st.dictionaries(
        st.sampled_from(
            [
                *("http_proxy", "HTTP_PROXY", "Http_Proxy", "HTTP_proxy", "https_proxy"),
                *("HTTPS_PROXY", "ALL_PROXY", "_proxy", "no_proxy", "REQUEST_METHOD", "MY_PROXY"),
            ]
        ),
        st.sampled_from(["", "http://h:1"]),
    )
)
def test_the_pages_with_an_inherited_proxy_are_those_for_which_urllib_finds_one(environ):
    with mock.patch.dict(os.environ, environ, clear=True):
        found = {scheme for scheme, url in getproxies_environment().items() if url}
    assert proxied_schemes(environ) == found & {"http", "https"}


@pytest.mark.parametrize(
    ("environ", "inherit", "names"),
    [
        ({"PROXY_URL_0": "http://joe:hushhush@h"}, False, "PROXY_URL_0"),
        ({"PROXY_URL_TEMPLATE": "http://user-{shard}:hus@h"}, False, "PROXY_URL_TEMPLATE"),
        ({"PROXY_URL_0": "http://user:%61%62%63@h"}, False, "PROXY_URL_0"),
        ({"PROXY_URL_0": "http://user:@h", "HTTP_PROXY": "http://joe:@h"}, True, "HTTP_PROXY"),
        ({"MY_PROXY": "http://joe:@h", "PROXY_URL": "http://joe:@h"}, True, "MY_PROXY, PROXY_URL"),
    ],
)
def test_a_password_too_short_to_be_hidden_is_said_by_the_name_of_its_variable(
    environ, inherit, names
):
    plan = make_plan(COMMAND, 1, environ, inherit_proxy=inherit)
    (said,) = [each for each in plan.notices if "too short" in each]
    assert said.startswith(f"{names}: a user name or password of fewer than 4 characters")
    assert "joe" not in said


def test_a_long_or_no_password_is_no_matter():
    environ = {"PROXY_URL_0": "http://user:pass@h:1", "PROXY_URL_1": "http://h", "X": "a:b@c"}
    assert not make_plan(COMMAND, 2, environ).notices
