"""Feeds that would lose what they are given: refused, or warned of, before the crawl begins."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from scrapy import Spider
from scrapy.extensions.feedexport import (
    FileFeedStorage,
    GCSFeedStorage,
    S3FeedStorage,
    StdoutFeedStorage,
)
from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object

from scrapy_hexshard.components.feed_params import OPTION, SETTING, with_shard
from scrapy_hexshard.config import Config
from scrapy_hexshard.errors import SettingError
from scrapy_hexshard.sharding import ShardSpec
from scrapy_hexshard.store import open_store
from scrapy_hexshard.store.contract import State

logger = logging.getLogger(__name__)

_TIMES = ("%(time)", "%(batch_time)")  # those that make a file of each run
_BRACES = re.compile(r"\{(shards?)\}")
_PARAMETER = re.compile(r"%\((\w+)\)[-+ #0]*[0-9]*(?:\.[0-9]+)?[a-z]")
_NUMBER = re.compile(r"(?<![0-9])(?:0|[1-9][0-9]*)(?![0-9])")  # as a shard's is written
_NEVER_APPENDED = (S3FeedStorage, GCSFeedStorage)


@dataclass(frozen=True, slots=True)
class FeedSetting:
    """One feed, as the settings have it."""

    uri: str
    options: Mapping[str, Any]
    storage: object  # a class, most likely

    def __str__(self) -> str:
        # As a path, or without what may be a password.
        return re.sub(r"(?<=//)[^/]*@", "", self.uri).partition("?")[0]

    @property
    def format(self) -> str:
        return str(self.options.get("format") or Path(self.uri).suffix.removeprefix("."))

    @property
    def suggested(self) -> str:
        """Its URI with the shard in it."""
        uri = _BRACES.sub(r"%(\1)s", str(self))
        if "%(shard)s" in uri:
            return uri
        head, dot, suffix = uri.rpartition(".")
        return f"{head}-%(shard)s.{suffix}" if dot and "/" not in suffix else f"{uri}-%(shard)s"

    @property
    def has_braces(self) -> bool:
        """Whether the shard is in it in the way of the launcher, which Scrapy does not fill in."""
        return _BRACES.search(str(self)) is not None

    @property
    def is_stdout(self) -> bool:
        return self._is(StdoutFeedStorage)

    @property
    def is_file(self) -> bool:
        """Whether what is written is there at once, and not when the feed closes."""
        return self._is(FileFeedStorage, StdoutFeedStorage)

    @property
    def overwrites(self) -> bool:
        if self.is_stdout:
            return False
        return self._is(*_NEVER_APPENDED) or bool(self.options.get("overwrite", not self.is_file))

    @property
    def is_new_each_run(self) -> bool:
        return any(time in self.uri for time in _TIMES)

    def is_own(self, spider: Spider, shard: ShardSpec) -> bool:
        """Whether the URI tells the worker of *shard* from the others; a path does for one only."""
        if "%(shard)" in self.uri:
            return True

        def value(found: re.Match[str]) -> str:
            return str(getattr(spider, found[1], ""))

        path = urlsplit(_PARAMETER.sub(value, self.uri)).path
        return _shards_named(path, shard.count) == {shard.index}

    def _is(self, *classes: type) -> bool:
        return isinstance(self.storage, type) and issubclass(self.storage, classes)


def check_feeds(settings: BaseSettings, config: Config, spider: Spider) -> None:
    """Raise SettingError for feeds that cannot be right, and warn of those that may lose items.

    Nothing has been opened yet when it is called.
    """
    feeds = list(_feeds(settings))
    if config.complete_after == "feed":
        _check_waiting(config, feeds)
    for feed in feeds:
        _check_shard(feed, config, spider, settings)
    overwritten = [feed for feed in feeds if feed.overwrites and not feed.is_new_each_run]
    if overwritten and _has_done_keys(config, spider):
        raise SettingError(
            f"Keys of shard {config.shard} are done, and the feed {overwritten[0]} would overwrite "
            "their items. Append to it with -o (in FEEDS, overwrite: False), or make a new file of "
            "each run with %(time)s in its name."
        )
    for feed in feeds:
        _warn(feed, config)


def _feeds(settings: BaseSettings) -> Iterator[FeedSetting]:
    found: dict[Any, Mapping[str, Any]] = {}
    if settings["FEED_URI"]:
        found[settings["FEED_URI"]] = {"format": settings["FEED_FORMAT"]}
    storages = settings.getwithbase("FEED_STORAGES")
    for given, options in (found | settings.getdict("FEEDS")).items():
        uri = str(given)
        path = storages.get(urlsplit(uri).scheme) or storages["file"]
        yield FeedSetting(uri, options, load_object(path))


def _check_waiting(config: Config, feeds: list[FeedSetting]) -> None:
    if not feeds:
        raise SettingError(
            "HEXSHARD_COMPLETE_AFTER = 'feed' completes keys once their items are in Scrapy's "
            "feeds, and there is none. Name one with -o 'items-%(shard)s.jsonl' or in FEEDS, or "
            "leave that setting out."
        )
    if config.follow == "key":
        raise SettingError(
            "HEXSHARD_COMPLETE_AFTER = 'feed' holds the links of a page back until its feed is "
            "stored, and HEXSHARD_FOLLOW = 'key' finds its work by them. Leave one of the two out."
        )


def _check_shard(feed: FeedSetting, config: Config, spider: Spider, settings: BaseSettings) -> None:
    shared = config.shard.count > 1 and not feed.is_stdout
    if shared and not feed.is_own(spider, config.shard):
        hint = " Only hexdigest-shard run fills in braces." if feed.has_braces else ""
        raise SettingError(
            f"The feed {feed} is the same for all {config.shard.count} workers, which would write "
            f"over each other's items. Give each its own: {feed.suggested}.{hint}"
        )
    function = feed.options.get(OPTION, settings[SETTING])
    if "%(shard" in feed.uri and not function and not _is_number(getattr(spider, "shard", None)):
        raise SettingError(
            f"Nothing supplies %(shard)s for the feed {feed}. Without the add-on, set {SETTING} = "
            f"'{with_shard.__module__}.{with_shard.__qualname__}'."
        )


def _shards_named(path: str, count: int) -> set[int]:
    """What could be a shard's number: in the file's name, or the whole name of a folder."""
    *folders, name = path.split("/")
    numbers = _NUMBER.findall(name) + [each for each in folders if _NUMBER.fullmatch(each)]
    # Their digits first: to read a number of thousands of digits is an error.
    return {int(each) for each in numbers if len(each) <= len(str(count)) and int(each) < count}


def _is_number(value: object) -> bool:
    return str(value).isdecimal()


def _has_done_keys(config: Config, spider: Spider) -> bool:
    location = config.store_of(spider.name)
    assert location is not None
    with open_store(location, config.shard) as store:
        store.bind_spider(spider.name)
        return store.counts()[State.DONE] > 0


def _warn(feed: FeedSetting, config: Config) -> None:
    waits = config.complete_after == "feed"
    if feed.format in {"json", "xml"} and feed.is_file and not (waits and feed.is_new_each_run):
        logger.warning(
            "The feed %s is one %s document: a run that is killed leaves it without its end, and "
            "the next run begins a second document in it, so that no program can read it. Use "
            ".jsonl.",
            feed,
            feed.format.upper(),
        )
    if not waits and (not feed.is_file or feed.options.get("postprocessing")):
        logger.warning(
            "The items of the feed %s are safe only once it has closed, and their keys are done "
            "before: a kill loses them. With HEXSHARD_COMPLETE_AFTER = 'feed' keys are done once "
            "it has, and with FEED_EXPORT_BATCH_ITEM_COUNT that is soon.",
            feed,
        )
