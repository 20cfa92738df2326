"""``%(shard)s`` and ``%(shards)s`` in the URI of a feed, as numbers wherever the shard is from."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from scrapy import Spider
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings
from scrapy.utils.misc import load_object

from scrapy_hexshard.config import find_shard

UriParams: TypeAlias = Callable[[dict[str, Any], Spider], dict[str, Any] | None]

SETTING = "FEED_URI_PARAMS"
OPTION = "uri_params"  # the same for one feed


def with_shard(
    params: dict[str, Any], spider: Spider, own: UriParams | None = None
) -> dict[str, Any]:
    """*params*, or what the project's *own* function makes of them, with ``shard`` and ``shards``.

    It is a value for the setting ``FEED_URI_PARAMS``; the add-on sets it by itself.
    """
    shard, _ = find_shard(spider.crawler.settings, vars(spider), os.environ)
    numbers = {"shard": shard.index, "shards": shard.count}
    given = {**params, **numbers}
    chosen = None if own is None else own(given, spider)
    return given if chosen is None else {**numbers, **chosen}


def supply_shard(settings: BaseSettings) -> None:
    """Have every feed in *settings* know the shard, through the project's own functions if any."""
    priority = max(settings.getpriority(SETTING) or 0, SETTINGS_PRIORITIES["addon"])
    settings.set(SETTING, _chained(settings[SETTING]), priority=priority)
    feeds = settings.getdict("FEEDS")
    if any(OPTION in options for options in feeds.values()):
        chained = {
            uri: {**options, OPTION: _chained(options[OPTION])} if OPTION in options else options
            for uri, options in feeds.items()
        }
        settings.set("FEEDS", chained, priority=settings.getpriority("FEEDS") or 0)


def supplies_shard(function: object) -> bool:
    """Whether *function*, a value of the setting, is the one of this module."""
    if function is None or function == "":
        return False
    loaded: object = load_object(function)  # type: ignore[arg-type]
    return with_shard in (loaded, getattr(loaded, "func", None))


def _chained(own: Any) -> Any:
    if supplies_shard(own):
        return own
    if own is None or own == "":
        return f"{with_shard.__module__}.{with_shard.__qualname__}"
    return partial(with_shard, own=load_object(own))
