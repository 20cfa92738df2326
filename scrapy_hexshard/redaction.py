"""Hides secrets in text and in streams of bytes, in any spelling and however the stream is cut."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache

REDACTED = b"***"
# A shorter text turns up in any log by chance. It stays hidden where it stands in its URL, beside
# the rest of the credentials, and in base64.
MIN_SECRET_LENGTH = 4

_QUOTED = "\"'\\"
_SHELL_QUOTES = {b"""'"'"'""", rb"""'\''"""}  # of shlex, and of sh -x
_ESCAPES = ("%%%02X", "%%%02x", "\\x%02x")


class Redactor:
    """Replaces every one of *secrets* by ``***``.

    A secret is known as it is, percent-encoded in part or whole, as JSON, Python or a shell would
    quote it, in UTF-8 and Latin-1.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        hidden = sorted(
            {secret for secret in secrets if len(secret) >= MIN_SECRET_LENGTH},
            key=lambda secret: (-len(secret), secret),
        )
        spelled = [[_spellings(character) for character in secret] for secret in hidden]
        self._pattern = re.compile(b"|".join(map(_pattern, spelled))) if spelled else None
        self._longest = max((_longest(secret) for secret in spelled), default=0)

    def hide(self, data: bytes) -> bytes:
        """*data* without its secrets."""
        return self._pattern.sub(REDACTED, data) if self._pattern else data

    def hide_text(self, text: str) -> str:
        """*text* without its secrets."""
        return self.hide(_encoded(text)).decode(errors="replace")

    def split(self, data: bytes) -> tuple[bytes, bytes]:
        """*data* as what can be shown at once, hidden, and an end in which a secret may have begun.

        Prepend the end, as it is, to what follows.
        """
        # Where a whole secret would fit, what follows can change nothing.
        decided = max(0, len(data) - max(0, self._longest - 1))
        if self._pattern:
            for match in self._pattern.finditer(data):
                if match.start() >= decided:
                    break
                decided = max(decided, match.end())
        return self.hide(data[:decided]), data[decided:]


def _encoded(text: str) -> bytes:
    """*text* in UTF-8, bytes that are none as they came."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="replace")


@cache
def _spellings(character: str) -> list[bytes]:
    """All ways in which *character* may be written, longest first."""
    if character.isascii() and (character.isalnum() or character in "-._~"):
        return [character.encode()]
    spellings = {json.dumps(character)[1:-1].encode()}
    if not character.isascii():
        spellings.add(character.encode("ascii", "backslashreplace"))
    if character in _QUOTED:
        spellings.add(b"\\" + character.encode())
    if character == "'":
        spellings |= _SHELL_QUOTES
    if character == " ":
        spellings.add(b"+")
    for encoded in _encodings(character):
        spellings.add(encoded)
        spellings |= {"".join(form % byte for byte in encoded).encode() for form in _ESCAPES}
    return sorted(spellings, key=len, reverse=True)


def _encodings(character: str) -> Iterator[bytes]:
    for codec in ("utf-8", "latin-1"):
        with suppress(UnicodeEncodeError):
            # A variable that is no UTF-8 arrives with its bytes escaped as surrogates.
            yield character.encode(codec, "surrogateescape")


def _pattern(spelled: list[list[bytes]]) -> bytes:
    return b"".join(
        re.escape(each[0]) if len(each) == 1 else b"(?:" + b"|".join(map(re.escape, each)) + b")"
        for each in spelled
    )


def _longest(spelled: list[list[bytes]]) -> int:
    return sum(len(each[0]) for each in spelled)
