"""What names one piece of work: the canonical form of a URL or an id, and its digest.

The canonical form is part of the published plan that says which shard owns a key. It never changes.
"""

from __future__ import annotations

import re
from hashlib import sha256
from urllib.parse import urlsplit, urlunsplit

from w3lib.url import safe_url_string

from scrapy_hexshard.errors import InvalidKeyError

CANONICAL_KEY_VERSION = 1
MAX_KEY_BYTES = 8192

# Default ports of the special schemes, from the URL Standard (https://url.spec.whatwg.org/#special-scheme).
_DEFAULT_PORTS = {"ftp": 21, "http": 80, "https": 443, "ws": 80, "wss": 443}
_C0_OR_SPACE = "".join(map(chr, range(0x21)))  # what a URL loses at its ends, by the URL Standard
# URLs that every step of the long way leaves alone; they are most of any real list.
_PLAIN_URL = re.compile(
    r"https?://[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63})*"
    r"(?::(?!80/|443/)[1-9][0-9]{0,3}|:[1-5][0-9]{4})?"  # ports that are no default one
    r"/[A-Za-z0-9/._~!$&()*+,;=:@%-]*"
    r"(?:\?[A-Za-z0-9/._~!$&()*+,;=:@%?-]+)?"
)
# https://url.spec.whatwg.org/#forbidden-host-code-point, but for those of an IPv6 address.
_FORBIDDEN_IN_HOST = re.compile(r"[\x00-\x20\x7f#/<>?@\\^|]")
_SKIPPED = dict.fromkeys(map(ord, "\t\n\r"))
# What Scrapy would take as a URL once made safe; all other text is an id. Schemes of the last line
# are those that urllib gives an empty host when none is written: "sftp:/a" becomes "sftp:///a".
_URL_LIKE = re.compile(
    r".*://|(?:about|data|file|ftp|https?|wss?):"
    r"|(?:git|git\+ssh|gopher|imap|itms-services|mms|nfs|nntp|prospero|rsync|rtsp[su]?|sftp|shttp"
    r"|snews|svn|svn\+ssh|telnet|wais):(?:[/?#]|\Z)",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)
_REQUEST_KEY = re.compile(r"([A-Z]+) (\S+) ([0-9a-f]{64})")


def canonical_key(value: str) -> str:
    """The one spelling of *value* under which it is stored, owned and looked up.

    A URL (it has a scheme and a host) is made safe as Scrapy does, and loses its user information,
    default port and fragment; path and query stay as written. Anything else is an id and only
    loses white space and control characters at its ends.

    Raises InvalidKeyError for an empty value, one over 8 KiB, a URL with an impossible port or
    host, and text that is not valid Unicode.
    """
    if not isinstance(value, str):
        raise InvalidKeyError(f"A key is text, not {type(value).__name__}.")
    if len(value) <= MAX_KEY_BYTES and _PLAIN_URL.fullmatch(value):
        return value
    key = _canonical(value.strip(_C0_OR_SPACE))
    _check_size(key)
    return key


def request_key(method: str, url: str, body: bytes = b"") -> str:
    """The key of a request: its canonical URL, or ``METHOD url body-digest`` unless a plain GET."""
    if method == "GET" and not body:
        return canonical_key(url)
    return canonical_key(f"{method.upper()} {canonical_key(url)} {sha256(body).hexdigest()}")


def digest(key: str) -> bytes:
    """The SHA-256 digest (32 bytes) of a canonical key in UTF-8."""
    return sha256(key.encode()).digest()


def _canonical(text: str) -> str:
    if request := _REQUEST_KEY.fullmatch(text):
        method, url, body_digest = request.groups()
        return f"{method} {_canonical(url)} {body_digest}"
    # A URL may be broken by tabs and line ends, which its parser skips.
    if not _URL_LIKE.match(text.translate(_SKIPPED)):
        key = text.strip(_C0_OR_SPACE + "\x7f")
        return key if key == text else _canonical(key)
    try:
        return _canonical_url(_safe_url(text))
    except ValueError as error:
        raise InvalidKeyError(f"Not a valid URL: {shown(text)} ({_reason(error)}).") from None


def _safe_url(text: str) -> str:
    # One pass does not settle a few malformed URLs, and a request has been through one already.
    while (safe := safe_url_string(text)) != text:
        text = safe
    return safe


def _canonical_url(url: str) -> str:
    parts = urlsplit(url)
    if not (parts.scheme and parts.hostname):
        return url
    if _FORBIDDEN_IN_HOST.search(parts.hostname):
        raise ValueError("forbidden character in the host")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = parts.port
    if port is not None and port != _DEFAULT_PORTS.get(parts.scheme):
        host = f"{host}:{port}"
    return urlunsplit((parts.scheme, host, parts.path or "/", parts.query, ""))


def _check_size(key: str) -> None:
    if not key:
        raise InvalidKeyError("A key cannot be empty.")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise InvalidKeyError(
            f"Not valid Unicode (a lone surrogate): {shown(key)}. Decode the input as UTF-8."
        ) from None
    if size > MAX_KEY_BYTES:
        raise InvalidKeyError(
            f"A key is at most {MAX_KEY_BYTES} bytes; this one is {size}: {shown(key)}."
        )


def _reason(error: ValueError) -> str:
    # The text of an encoding error holds the whole URL, and so a password in it.
    return "not valid Unicode" if isinstance(error, UnicodeError) else "impossible host or port"


def shown(text: str) -> str:
    """*text* as an error may show it: in ASCII, cut short, and without user information."""
    # All up to the last @, as a password may hold any character.
    without_userinfo = re.sub(r"(?s)^([a-z]+://)?.*@", r"\1***@", text)
    return ascii(without_userinfo[:80] + ("..." if len(without_userinfo) > 80 else ""))
