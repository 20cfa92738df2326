"""Every ``HEXSHARD_*`` setting: its name, default and check, read once into one frozen Config."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from scrapy_hexshard.errors import SettingError, ShardError
from scrapy_hexshard.sharding import (
    SHARD_VARIABLE,
    SHARDS_VARIABLE,
    ShardSpec,
    parse_number,
)

Follow = Literal["unit", "key", "drop"]
Empty = Literal["done", "fail"]
CompleteAfter = Literal["unit", "feed"]

DEFAULT_LEASE_SECONDS = 120.0
MAX_SECONDS = 1e8  # three years: more is a mistake
WHOLE_CRAWL = ShardSpec(0, 1)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When a failed key is tried again, and when it is given up.

    *delay* is in seconds; it doubles with each attempt, up to *max_delay*. *max_attempts* counts a
    key's own failures. After *max_deaths* deaths of its worker it is worked on alone, and after
    *max_lone_deaths* deaths alone it is given up.
    """

    max_attempts: int = 3
    delay: float = 10.0
    max_delay: float = 3600.0
    max_deaths: int = 2
    max_lone_deaths: int = 3

    def is_last(self, attempt: int) -> bool:
        """Whether a failure of *attempt* (from 1) leaves no further one."""
        return attempt >= self.max_attempts

    def is_suspect(self, deaths: int) -> bool:
        """Whether a key under which a worker died so often is to be worked on alone."""
        return deaths >= self.max_deaths

    def is_condemned(self, lone_deaths: int) -> bool:
        """Whether a key under which a worker died so often, with nothing else open, is given up."""
        return lone_deaths >= self.max_lone_deaths

    def retry_in(self, attempt: int, jitter: float) -> float:
        """Seconds until the attempt after *attempt*; *jitter* in 0..1 spreads it by a quarter."""
        doubled = self.delay * 2.0 ** min(attempt - 1, 64)
        return min(doubled, self.max_delay) * (0.75 + 0.5 * jitter)


DEFAULT_RETRY = RetryPolicy()


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of one worker, checked. Times are in seconds."""

    enabled: bool = True
    store: str | None = None
    shard: ShardSpec = WHOLE_CRAWL
    shard_source: str = "nowhere"
    lease_seconds: float = DEFAULT_LEASE_SECONDS
    unit_timeout: float = 1800.0
    max_units: int = 32
    retry: RetryPolicy = DEFAULT_RETRY
    permanent_http: frozenset[int] = frozenset({404, 410})
    empty: Empty = "done"
    follow: Follow = "unit"
    items: bool = False
    complete_after: CompleteAfter = "unit"
    share_rate: bool = False

    @classmethod
    def read(
        cls,
        settings: Mapping[str, Any],
        arguments: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> Config:
        """The configuration in *settings*, with the shard from spider *arguments*, *settings* or
        *environ*, whichever has it first.

        Raises SettingError or ShardError, naming the setting and the value.
        """
        read = _Reader(settings)
        concurrency = read.whole("CONCURRENT_REQUESTS", 16, 1)
        shard, source = find_shard(settings, arguments or {}, environ)
        config = cls(
            enabled=read.boolean("HEXSHARD_ENABLED", True),
            store=read.text("HEXSHARD_STORE"),
            shard=shard,
            shard_source=source,
            lease_seconds=read.seconds("HEXSHARD_LEASE_SECONDS", DEFAULT_LEASE_SECONDS, 1.0),
            unit_timeout=read.seconds("HEXSHARD_UNIT_TIMEOUT", 1800.0, 0.001),
            max_units=read.whole("HEXSHARD_MAX_UNITS", 2 * concurrency, 1),
            retry=RetryPolicy(
                max_attempts=read.whole("HEXSHARD_MAX_ATTEMPTS", 3, 1),
                delay=read.seconds("HEXSHARD_RETRY_DELAY", 10.0, 0.0),
                max_deaths=read.whole("HEXSHARD_MAX_DEATHS", 2, 1),
                max_lone_deaths=read.whole("HEXSHARD_MAX_LONE_DEATHS", 3, 1),
            ),
            permanent_http=read.statuses("HEXSHARD_PERMANENT_HTTP", (404, 410)),
            empty=cast("Empty", read.choice("HEXSHARD_EMPTY", "done", ("done", "fail"))),
            follow=cast("Follow", read.choice("HEXSHARD_FOLLOW", "unit", ("unit", "key", "drop"))),
            items=read.boolean("HEXSHARD_ITEMS", False),
            complete_after=cast(
                "CompleteAfter", read.choice("HEXSHARD_COMPLETE_AFTER", "unit", ("unit", "feed"))
            ),
            share_rate=read.boolean("HEXSHARD_SHARE_RATE", False),
        )
        read.refuse_unknown("HEXSHARD_SHARD", "HEXSHARD_SHARDS")
        return config

    def store_of(self, spider: str) -> str | None:
        """The store that the spider of that name works on."""
        return None if self.store is None else self.store.replace("%(spider)s", spider)


def find_shard(
    settings: Mapping[str, Any], arguments: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[ShardSpec, str]:
    """The shard and where it was found: spider arguments, settings, environment or nowhere.

    Index and count each come from the first source that has them. Nowhere means worker 0 of 1.
    Raises ShardError when only one of the two is to be found.
    """
    written = arguments.get("shard")
    if isinstance(written, str) and "/" in written:
        spec = ShardSpec.parse(written)
        if str(arguments.get("shards") or spec.count) != str(spec.count):
            raise ShardError(
                f"The spider arguments shard={spec} and shards={arguments['shards']!r} contradict "
                "each other. Leave shards out."
            )
        return spec, "spider arguments"
    index = _first(
        ("spider arguments", arguments.get("shard")),
        ("settings", settings.get("HEXSHARD_SHARD")),
        ("environment", environ.get(SHARD_VARIABLE)),
    )
    count = _first(
        ("spider arguments", arguments.get("shards")),
        ("settings", settings.get("HEXSHARD_SHARDS")),
        ("environment", environ.get(SHARDS_VARIABLE)),
    )
    if index is None and count is None:
        return WHOLE_CRAWL, "nowhere"
    if index is None or count is None:
        found, missing = ("count", "index") if index is None else ("index", "count")
        raise ShardError(
            f"A shard {found} was given without the {missing}. Give both: -a shard=0 -a shards=4, "
            f"HEXSHARD_SHARD and HEXSHARD_SHARDS, or {SHARD_VARIABLE} and {SHARDS_VARIABLE}."
        )
    spec = ShardSpec(_number(index[1], "the shard index"), _number(count[1], "the shard count"))
    return spec, index[0] if index[0] == count[0] else f"{index[0]} and {count[0]}"


def _first(*found: tuple[str, Any]) -> tuple[str, Any] | None:
    return next(((source, value) for source, value in found if value not in (None, "")), None)


def _number(value: Any, what: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return parse_number(str(value), what)


class _Reader:
    """Checked values from a mapping whose values may be text, as those of a command line are."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._asked: set[str] = set()

    def refuse_unknown(self, *known: str) -> None:
        """Raise SettingError for a setting of ours that nothing has asked for, nor is *known*."""
        self._asked.update(known)
        for name in self._settings:
            if name.startswith("HEXSHARD_") and name not in self._asked:
                near = difflib.get_close_matches(name, self._asked, 1, 0.85)
                hint = f"Did you mean {near[0]}?" if near else "The reference lists them all."
                raise SettingError(f"There is no setting {name}. {hint}")

    def _get(self, name: str) -> Any:
        self._asked.add(name)
        value = self._settings.get(name)
        return None if value == "" else value

    def text(self, name: str) -> str | None:
        value = self._get(name)
        if value is None:
            return None
        if isinstance(value, str):
            return value
        if isinstance(value, os.PathLike):
            return str(value)
        raise SettingError(f"{name} is a path or a store URL, not {value!r}.")

    def boolean(self, name: str, default: bool) -> bool:
        value = self._get(name)
        if value is None:
            return default
        known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if isinstance(value, bool | int | str) and str(value).lower() in known:
            return known[str(value).lower()]
        raise SettingError(f"{name} is True or False, not {value!r}.")

    def whole(self, name: str, default: int, least: int) -> int:
        value = self._get(name)
        if value is None:
            return default
        try:
            number = int(str(value))
        except ValueError:
            number = least - 1
        if number < least:
            raise SettingError(f"{name} is a whole number from {least}, not {value!r}.")
        return number

    def seconds(self, name: str, default: float, least: float) -> float:
        value = self._get(name)
        if value is None:
            return default
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if isinstance(value, bool) or not (least <= number <= MAX_SECONDS):
            raise SettingError(
                f"{name} is a number of seconds from {least:g} to {MAX_SECONDS:g}, not {value!r}."
            )
        return number

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        value = self._get(name)
        if value is None:
            return default
        if value in choices:
            return cast("str", value)
        raise SettingError(f"{name} is {' or '.join(map(repr, choices))}, not {value!r}.")

    def statuses(self, name: str, default: Iterable[int]) -> frozenset[int]:
        value = self._get(name)
        if value is None:
            return frozenset(default)
        parts = value.split(",") if isinstance(value, str) else value
        try:
            statuses = frozenset(int(part) for part in parts)
        except (TypeError, ValueError):
            statuses = frozenset({0})
        if not all(100 <= status <= 599 for status in statuses):
            raise SettingError(
                f"{name} is a list of HTTP statuses such as [404, 410], not {value!r}."
            )
        return statuses
