"""One error tree. Every message is a sentence that names the facts and what to do next."""

from __future__ import annotations


class HexShardError(Exception):
    """Base of every error this package raises on purpose."""


class InvalidKeyError(HexShardError, ValueError):
    """A value that cannot name a piece of work: empty, too long, or not a valid URL or id."""


class ShardError(HexShardError, ValueError):
    """A shard index or count that is missing, not a number, or out of range."""


class SettingError(HexShardError, ValueError):
    """A setting, option or environment variable with a value that cannot be used."""


class PayloadError(HexShardError, ValueError):
    """A payload that is not JSON, or is larger than a store accepts."""


class StoreError(HexShardError):
    """A store that cannot be opened, or that refused an operation."""


class StoreMismatchError(StoreError):
    """A store that belongs to another crawl: other shard count, spider, schema or key version."""


class StoreUnavailableError(StoreError):
    """A store that cannot be used where it is: missing, full, locked or not a store."""


class LaunchError(HexShardError):
    """A worker command that cannot be started."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UnsupportedScrapyError(HexShardError):
    """A Scrapy whose insides differ from those the accounting of units relies on."""
