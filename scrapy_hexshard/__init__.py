"""Crawl a large list of keys with Scrapy on N stable shards."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scrapy_hexshard.components.addon import HexShardAddon
    from scrapy_hexshard.components.exceptions import UnownedRequest
    from scrapy_hexshard.config import Config, RetryPolicy
    from scrapy_hexshard.errors import (
        HexShardError,
        InvalidKeyError,
        LaunchError,
        PayloadError,
        SettingError,
        ShardError,
        StoreError,
        StoreMismatchError,
        StoreUnavailableError,
        UnsupportedScrapyError,
    )
    from scrapy_hexshard.keys import canonical_key, request_key
    from scrapy_hexshard.sharding import (
        ShardSpec,
        assigned_indices,
        legacy_rowid_owner,
        stable_owner,
    )
    from scrapy_hexshard.store import open_store
    from scrapy_hexshard.store.contract import Claim, Settlement, Work, WorkStore
    from scrapy_hexshard.store.sqlite import SQLiteWorkStore

__version__ = "0.1.0"

# Resolved on first use (PEP 562), so that a command that needs no Scrapy does not import it.
_HOMES = {
    "components.addon": ("HexShardAddon",),
    "components.exceptions": ("UnownedRequest",),
    "config": ("Config", "RetryPolicy"),
    "errors": (
        "HexShardError",
        "InvalidKeyError",
        "LaunchError",
        "PayloadError",
        "SettingError",
        "ShardError",
        "StoreError",
        "StoreMismatchError",
        "StoreUnavailableError",
        "UnsupportedScrapyError",
    ),
    "keys": ("canonical_key", "request_key"),
    "sharding": ("ShardSpec", "assigned_indices", "legacy_rowid_owner", "stable_owner"),
    "store": ("open_store",),
    "store.contract": ("Claim", "Settlement", "Work", "WorkStore"),
    "store.sqlite": ("SQLiteWorkStore",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Claim",
    "Config",
    "HexShardAddon",
    "HexShardError",
    "InvalidKeyError",
    "LaunchError",
    "PayloadError",
    "RetryPolicy",
    "SQLiteWorkStore",
    "SettingError",
    "Settlement",
    "ShardError",
    "ShardSpec",
    "StoreError",
    "StoreMismatchError",
    "StoreUnavailableError",
    "UnownedRequest",
    "UnsupportedScrapyError",
    "Work",
    "WorkStore",
    "assigned_indices",
    "canonical_key",
    "legacy_rowid_owner",
    "open_store",
    "request_key",
    "stable_owner",
]


def __getattr__(name: str) -> Any:
    try:
        home = _HOME_OF[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
