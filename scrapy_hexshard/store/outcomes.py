"""The two forms in which an outcome is kept: its text, and a short form that is counted."""

from __future__ import annotations

MAX_TEXT = 500
MAX_SHORT = 100
MAX_COUNTED = 200
OTHER = "(other)"
_NO_TEXT = "(no text)"


def outcome_text(outcome: str) -> str:
    """The outcome as it is kept: at most 500 characters that every database can store."""
    text = str(outcome)[:MAX_TEXT].replace("\x00", "\\x00")
    return text.encode("utf-8", "backslashreplace").decode().strip() or _NO_TEXT


def short_form(text: str) -> str:
    """The form under which an outcome is counted: its first line, at most 100 characters."""
    return text.splitlines()[0][:MAX_SHORT].rstrip()
