"""Each setting: its default, its good forms, and the sentence for a bad one."""

from __future__ import annotations

import os
import re
from dataclasses import FrozenInstanceError
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_hexshard.config import DEFAULT_RETRY, WHOLE_CRAWL, Config, RetryPolicy, find_shard
from scrapy_hexshard.errors import SettingError, ShardError
from scrapy_hexshard.sharding import ShardSpec


def read(**settings: Any) -> Config:
    return Config.read(settings, {}, {})


def test_without_settings_everything_has_its_documented_default() -> None:
    assert read() == Config(
        enabled=True,
        store=None,
        shard=ShardSpec(0, 1),
        shard_source="nowhere",
        lease_seconds=120.0,
        unit_timeout=1800.0,
        max_units=32,
        retry=RetryPolicy(
            max_attempts=3, delay=10.0, max_delay=3600.0, max_deaths=2, max_lone_deaths=3
        ),
        permanent_http=frozenset({404, 410}),
        empty="done",
        follow="unit",
        items=False,
        complete_after="unit",
        share_rate=False,
    )
    assert read() == Config()


# One line a setting: the attribute it sets, good forms and what they mean, bad values.
BOOLEANS: dict[Any, bool] = {
    **dict.fromkeys([True, "True", "true", "TRUE", "1", "yes"], True),
    **dict.fromkeys([False, "False", "false", "0", "no"], False),
}
BAD_BOOLEANS = ["maybe", "on off", 2, -1, 1.0, [], {}, " true"]
BAD_WHOLES = [0, -1, "0", "-3", "x", 1.5, "1.5", True, [], "∞"]
BAD_SECONDS = [-1, "-0.1", "x", "nan", "inf", float("nan"), float("inf"), True, [], {}, 10**400]
SETTINGS: dict[str, tuple[str, dict[Any, Any], list[Any]]] = {
    "HEXSHARD_ENABLED": ("enabled", BOOLEANS, BAD_BOOLEANS),
    "HEXSHARD_ITEMS": ("items", BOOLEANS, BAD_BOOLEANS),
    "HEXSHARD_SHARE_RATE": ("share_rate", BOOLEANS, BAD_BOOLEANS),
    "HEXSHARD_STORE": (
        "store",
        {
            "crawl.sqlite3": "crawl.sqlite3",
            "sqlite:///%(spider)s.db": "sqlite:///%(spider)s.db",
            Path("a") / "b": os.path.join("a", "b"),  # noqa: PTH118
        },
        [True, 7, b"crawl.sqlite3", ["crawl.sqlite3"]],
    ),
    "HEXSHARD_LEASE_SECONDS": (
        "lease_seconds",
        {1: 1.0, 1.5: 1.5, "30": 30.0, "2.5": 2.5, Decimal("2.5"): 2.5},
        [*BAD_SECONDS, 0, 0.999],
    ),
    "HEXSHARD_UNIT_TIMEOUT": (
        "unit_timeout",
        {0.001: 0.001, "0.5": 0.5, 86400: 86400.0},
        [*BAD_SECONDS, 0, 0.0009],
    ),
    "HEXSHARD_MAX_UNITS": ("max_units", {1: 1, "7": 7, 10_000: 10_000}, BAD_WHOLES),
    "HEXSHARD_MAX_ATTEMPTS": ("retry.max_attempts", {1: 1, "5": 5}, BAD_WHOLES),
    "HEXSHARD_MAX_DEATHS": ("retry.max_deaths", {1: 1, "5": 5}, BAD_WHOLES),
    "HEXSHARD_MAX_LONE_DEATHS": ("retry.max_lone_deaths", {1: 1, "5": 5}, BAD_WHOLES),
    "HEXSHARD_RETRY_DELAY": ("retry.delay", {0: 0.0, "0.25": 0.25, 60: 60.0}, BAD_SECONDS),
    "HEXSHARD_PERMANENT_HTTP": (
        "permanent_http",
        {
            (404, 410, 451): frozenset({404, 410, 451}),
            ("404", "451"): frozenset({404, 451}),
            "404, 451": frozenset({404, 451}),
            "404": frozenset({404}),
            (): frozenset(),
            frozenset({100, 599}): frozenset({100, 599}),
        },
        [404, "4o4", "404;410", [99], [600], [None], [True], "404,,410", object()],
    ),
    "HEXSHARD_EMPTY": ("empty", {"done": "done", "fail": "fail"}, ["Done", "dead", 1, True, []]),
    "HEXSHARD_COMPLETE_AFTER": (
        "complete_after",
        {"unit": "unit", "feed": "feed"},
        ["FEED", "item", 1, True, ["feed"]],
    ),
    "HEXSHARD_FOLLOW": ("follow", {"unit": "unit", "drop": "drop"}, ["UNIT", "none", 0, ["unit"]]),
}
GOOD = [
    pytest.param(name, attribute, value, meaning, id=f"{name}={value!r}"[:60])
    for name, (attribute, good, _) in SETTINGS.items()
    for value, meaning in good.items()
]
BAD = [
    pytest.param(name, value, id=f"{name}-{number}")
    for name, (_, _, bad) in SETTINGS.items()
    for number, value in enumerate(bad)
]


@pytest.mark.parametrize(("name", "attribute", "value", "meaning"), GOOD)
def test_a_good_form_is_understood(name: str, attribute: str, value: Any, meaning: Any) -> None:
    found: Any = read(**{name: value})
    for part in attribute.split("."):
        found = getattr(found, part)
    assert found == meaning
    assert type(found) is type(meaning)


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_bad_value_is_refused_by_the_name_of_the_setting(name: str, value: Any) -> None:
    with pytest.raises(SettingError, match=rf"^{name} is .*, not .+\.$"):
        read(**{name: value})


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("nothing", [None, ""])
def test_nothing_given_means_the_default(name: str, nothing: str | None) -> None:
    assert read(**{name: nothing}) == Config()


@pytest.mark.parametrize(("concurrency", "units"), [(8, 16), ("100", 200)])
def test_open_units_follow_the_concurrency(concurrency: Any, units: int) -> None:
    assert read(CONCURRENT_REQUESTS=concurrency).max_units == units
    assert read(CONCURRENT_REQUESTS=concurrency, HEXSHARD_MAX_UNITS=5).max_units == 5


def test_a_config_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        read().items = True  # type: ignore[misc]


ARGUMENTS = {"shard": "1", "shards": "4"}
SHARD_SETTINGS = {"HEXSHARD_SHARD": 2, "HEXSHARD_SHARDS": 5}
ENVIRON = {"CRAWL_SHARD": "3", "CRAWL_SHARDS": "6"}


class TestShardSources:
    def test_spider_arguments_come_first_then_settings_then_the_environment(self) -> None:
        found = find_shard(SHARD_SETTINGS, ARGUMENTS, ENVIRON)
        assert found == (ShardSpec(1, 4), "spider arguments")
        assert find_shard(SHARD_SETTINGS, {}, ENVIRON) == (ShardSpec(2, 5), "settings")
        assert find_shard({}, {}, ENVIRON) == (ShardSpec(3, 6), "environment")
        assert find_shard({}, {}, {}) == (WHOLE_CRAWL, "nowhere")

    def test_the_config_has_it_from_any_of_them(self) -> None:
        config = Config.read(SHARD_SETTINGS, ARGUMENTS, ENVIRON)
        assert (config.shard, config.shard_source) == (ShardSpec(1, 4), "spider arguments")
        assert Config.read({}, None, ENVIRON).shard == ShardSpec(3, 6)

    def test_the_config_reads_the_environment_of_the_process(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in ENVIRON.items():
            monkeypatch.setenv(name, value)
        assert Config.read({}).shard == ShardSpec(3, 6)

    def test_index_and_count_each_come_from_their_first_source(self) -> None:
        found = find_shard({"HEXSHARD_SHARDS": "5"}, {"shard": "4"}, ENVIRON)
        assert found == (ShardSpec(4, 5), "spider arguments and settings")
        found = find_shard({"HEXSHARD_SHARD": 0}, {}, ENVIRON)
        assert found == (ShardSpec(0, 6), "settings and environment")

    def test_one_argument_may_name_both(self) -> None:
        found = find_shard(SHARD_SETTINGS, {"shard": "2/4"}, ENVIRON)
        assert found == (ShardSpec(2, 4), "spider arguments")
        assert find_shard({}, {"shard": "2/4", "shards": "4"}, {})[0] == ShardSpec(2, 4)

    @pytest.mark.parametrize("shards", ["8", 8, "x"])
    def test_two_counts_that_differ_are_refused(self, shards: Any) -> None:
        with pytest.raises(ShardError, match=r"2/4.*(8|'x')"):
            find_shard({}, {"shard": "2/4", "shards": shards}, {})

    def test_an_empty_value_counts_as_not_given(self) -> None:
        settings = {"HEXSHARD_SHARD": None, "HEXSHARD_SHARDS": ""}
        found = find_shard(settings, {"shard": "", "shards": ""}, ENVIRON)
        assert found == (ShardSpec(3, 6), "environment")

    @pytest.mark.parametrize("source", range(3))
    @pytest.mark.parametrize(
        ("drop", "found", "missing"), [(0, "count", "index"), (1, "index", "count")]
    )
    def test_one_of_the_two_alone_is_refused(
        self, source: int, drop: int, found: str, missing: str
    ) -> None:
        both: dict[str, Any] = dict((SHARD_SETTINGS, ARGUMENTS, ENVIRON)[source].items())
        del both[list(both)[drop]]
        sources: list[dict[str, Any]] = [{}, {}, {}]
        sources[source] = both
        with pytest.raises(ShardError, match=f"shard {found} was given without the {missing}"):
            find_shard(*sources)

    @pytest.mark.parametrize("bad", ["x", "-1", "01", True, 1.0, [1], "1/2/3", "2/", "/4"])
    def test_a_bad_shard_is_refused(self, bad: Any) -> None:
        with pytest.raises(ShardError):
            find_shard({}, {"shard": bad, "shards": "4"}, {})
        with pytest.raises(ShardError):
            find_shard({"HEXSHARD_SHARD": bad, "HEXSHARD_SHARDS": 4}, {}, {})

    @pytest.mark.parametrize("count", ["4x", 0, "70000", False])
    def test_a_bad_count_is_refused(self, count: Any) -> None:
        with pytest.raises(ShardError, match=re.escape(str(count))):
            find_shard({"HEXSHARD_SHARD": 0, "HEXSHARD_SHARDS": count}, {}, {})

    def test_an_index_out_of_range_is_refused(self) -> None:
        with pytest.raises(ShardError, match="Shard 4 does not exist"):
            find_shard({}, {"shard": "4", "shards": "4"}, {})


class TestRetryPolicy:
    def test_the_delay_doubles_up_to_the_longest(self) -> None:
        policy = RetryPolicy(delay=10.0, max_delay=100.0)
        assert [policy.retry_in(n, 0.5) for n in range(1, 7)] == [10, 20, 40, 80, 100, 100]

    @given(st.integers(1, 10**6), st.floats(0, 1))
    def test_jitter_spreads_it_by_a_quarter_and_no_more(self, attempt: int, jitter: float) -> None:
        middle = DEFAULT_RETRY.retry_in(attempt, 0.5)
        assert 0.75 * middle <= DEFAULT_RETRY.retry_in(attempt, jitter) <= 1.25 * middle

    def test_the_last_attempt_is_the_one_allowed_last(self) -> None:
        policy = RetryPolicy(max_attempts=3)
        assert [policy.is_last(attempt) for attempt in (1, 2, 3, 4)] == [False, False, True, True]

    def test_no_delay_means_at_once(self) -> None:
        assert RetryPolicy(delay=0.0).retry_in(5, 1.0) == 0.0


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("HEXSHARD_STOER", "Did you mean HEXSHARD_STORE?"),
        ("HEXSHARD_SHARDSS", "Did you mean HEXSHARD_SHARDS?"),
        ("HEXSHARD_ZZZ", "The reference lists them all."),
    ],
)
def test_a_misspelt_setting_is_refused_with_the_likely_name(name: str, hint: str) -> None:
    with pytest.raises(SettingError, match=f"There is no setting {name}. {re.escape(hint)}"):
        Config.read({name: "x"}, environ={})
