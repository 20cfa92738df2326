"""Hides secrets in log records: the second net, as nothing should log them in the first place."""

from __future__ import annotations

import logging
import re

from scrapy_hexshard.redaction import Redactor

# At DEBUG the httpcore of httpx tells the login for any SOCKS proxy.
_SOCKS_LOGGERS = ("httpcore.socks", "httpcore2.socks")
_SOCKS_LOGIN = re.compile(r"\bauth=\(.*\)(?= timeouts=|$)", re.DOTALL)


def hide_in_logs(secrets: frozenset[str]) -> None:
    """Hide *secrets*, and those of earlier calls, in all that the root handlers write."""
    _FILTER.add(secrets)
    for handler in logging.root.handlers:
        handler.addFilter(_FILTER)


class SecretFilter(logging.Filter):
    """Replaces secrets in the message, the traceback and the stack of every record."""

    def __init__(self) -> None:
        super().__init__()
        self._secrets: frozenset[str] = frozenset()
        self._redactor = Redactor(())

    def add(self, secrets: frozenset[str]) -> None:
        """Hide these too."""
        self._secrets |= secrets
        self._redactor = Redactor(self._secrets)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name in _SOCKS_LOGGERS:
            record.msg, record.args = _SOCKS_LOGIN.sub("auth=***", record.getMessage()), None
        if self._secrets:
            self._hide(record)
        return True

    def _hide(self, record: logging.LogRecord) -> None:
        message = _message(record)
        if (shown := self._redactor.hide_text(message)) != message:
            record.msg, record.args = shown, None
        trace = _trace(record)
        if (shown := self._redactor.hide_text(trace)) != trace:
            # A handler that prints exceptions in its own way must not find this one.
            record.exc_text, record.exc_info = shown, None
        if record.stack_info:
            record.stack_info = self._redactor.hide_text(record.stack_info)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a mistake in the caller's format; logging prints both parts
        record.msg, record.args = f"{record.msg} % {record.args!r}", None
        return record.getMessage()


def _trace(record: logging.LogRecord) -> str:
    if record.exc_text or not record.exc_info:
        return record.exc_text or ""
    return logging.Formatter().formatException(record.exc_info)


_FILTER = SecretFilter()
