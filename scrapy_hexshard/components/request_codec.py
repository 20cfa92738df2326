"""Requests as JSON payloads: by name and value, never by pickle, and never with a secret.

Beside what JSON knows, meta, cb_kwargs and flags may hold tuples, sets, frozensets, bytes, dates,
datetimes and Decimals; callbacks and errbacks are methods of the spider. A request with anything
else, or with credentials in it, cannot be stored.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from inspect import ismethod
from typing import Any
from urllib.parse import urlsplit

from scrapy import FormRequest, Request, Spider
from scrapy.http import JsonRequest, XmlRpcRequest
from scrapy.utils.request import request_from_dict

from scrapy_hexshard.errors import HexShardError
from scrapy_hexshard.keys import canonical_key, request_key
from scrapy_hexshard.store.contract import MAX_PAYLOAD_BYTES

TOKEN = "hexshard_token"  # noqa: S105 - a fencing number, not a secret
OWN = "hexshard_own"  # the request of the key itself, its retries and redirects included
SHARD_KEY = "shard_key"

MAX_PRIORITY = 2**31 - 1

_MARK = "hexshard"
_VERSION = 1
# Of a key whose request could not be stored and lives in its worker only.
LIVE_PAYLOAD = json.dumps({_MARK: _VERSION, "live": True}, separators=(",", ":"))
_TYPE, _VALUE = "$type", "$value"
# These build an ordinary request and add nothing that outlives their making.
_PLAIN_TYPES = (Request, FormRequest, JsonRequest, XmlRpcRequest)
_SECRET_HEADERS = (b"Authorization", b"Proxy-Authorization", b"Cookie")
_REDIRECTS = ("redirect_urls", "redirect_reasons", "redirect_times", "redirect_ttl")
_SECRET_META = ("http_user", "http_pass", "ftp_user", "ftp_password")
# In a form or in JSON.
_PASSWORD_FIELD = re.compile(rb"(?:passw(?:or)?d|pwd)[\w.\-\]\[%]*\"?\s*[=:]", re.IGNORECASE)
# What decoding JSON that we did not write may raise.
_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
_DEFAULTS: Mapping[str, Any] = {
    "callback": None,
    "errback": None,
    "headers": {},
    "method": "GET",
    "body": b"",
    "cookies": {},
    "meta": {},
    "encoding": "utf-8",
    "priority": 0,
    "dont_filter": False,
    "flags": [],
    "cb_kwargs": {},
}


class CannotStoreError(HexShardError):
    """A request that JSON cannot hold, or that carries a secret."""


class PayloadIsNoRequestError(HexShardError):
    """A payload that cannot be turned back into a request of this spider."""


def key_of(request: Request) -> str:
    """The key of *request*: its ``shard_key``, or its canonical URL; raises InvalidKeyError."""
    if (chosen := request.meta.get(SHARD_KEY)) is not None:
        return canonical_key(chosen)
    return request_key(request.method, request.url, request.body)


def set_out(request: Request) -> None:
    """Forget the redirects of the page that *request* was found on and whose meta it took along."""
    for name in _REDIRECTS:
        request.meta.pop(name, None)


def of_unit(request: Request, token: int) -> Request:
    """*request* as one of the unit of *token*: a copy if it is that of another unit already.

    A spider may yield one request for many keys, and it must not change hands while it is on its
    way for one of them.
    """
    if request.meta.get(TOKEN, token) != token:
        request = request.copy()
    request.meta[TOKEN] = token
    return request


def stored_priority(request: Request) -> int:
    """The priority of *request* as a store takes it."""
    return max(-MAX_PRIORITY, min(request.priority, MAX_PRIORITY))


def encode_request(request: Request, spider: Spider, key: str) -> str:
    """The payload that brings *request* back; raises CannotStoreError, without a secret in it."""
    _check_storable(request)
    fields = {name: getattr(request, name) for name in request.attributes}
    fields |= {role: _method_name(request, role, spider) for role in ("callback", "errback")}
    fields["headers"] = _header_text(fields["headers"])
    fields["meta"] = {k: v for k, v in fields["meta"].items() if k not in (TOKEN, OWN)}
    kept = {name: v for name, v in fields.items() if v != _DEFAULTS.get(name, _MARK)}
    if kept.get("url") == key:
        del kept["url"]
    try:
        payload = json.dumps({_MARK: _VERSION, **_encode(kept)}, separators=(",", ":"))
    except (ValueError, RecursionError) as error:
        raise CannotStoreError(f"JSON cannot hold it ({type(error).__name__})") from None
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise CannotStoreError(f"it is over {MAX_PAYLOAD_BYTES} bytes as JSON")
    return payload


def is_live(payload: str | None) -> bool:
    """Whether *payload* is that of a live request."""
    return payload == LIVE_PAYLOAD


def holds_request(payload: str | None) -> bool:
    """Whether *payload* is a stored request, rather than none or one of the user's own."""
    return payload is not None and payload.startswith(f'{{"{_MARK}":')


def stored_depth(fields: Any) -> int | None:
    """The depth of the request stored as *fields*, decoded from JSON; None if it has none."""
    meta = fields.get("meta", {})
    depth = meta.get("depth") if isinstance(meta, dict) else None
    return depth if isinstance(depth, int) else None


def decode_request(payload: str, spider: Spider, key: str) -> Request:
    """The request stored in *payload*; raises PayloadIsNoRequestError with the reason."""
    fields = json.loads(payload)
    if not isinstance(fields, dict) or fields.pop(_MARK, None) != _VERSION:
        raise PayloadIsNoRequestError("not a stored request, and no request_for_key to read it")
    try:
        fields = {"url": key, **_decode(fields)}
        fields["headers"] = _header_bytes(fields.get("headers", {}))
        return request_from_dict(fields, spider=spider)
    except _UNREADABLE as error:
        raise PayloadIsNoRequestError(f"{type(error).__name__}: {error}") from None


def _check_storable(request: Request) -> None:
    if type(request) not in _PLAIN_TYPES:
        raise CannotStoreError(f"its type is {type(request).__name__}")
    if request.cookies or any(name in request.headers for name in _SECRET_HEADERS):
        raise CannotStoreError("it carries cookies or an authorization header")
    if any(name in request.meta for name in _SECRET_META):
        raise CannotStoreError("it carries a user name or password in its meta")
    if _PASSWORD_FIELD.search(request.body):
        raise CannotStoreError("it sends a password")
    if "@" in urlsplit(request.url).netloc or "@" in str(request.meta.get("proxy", "")):
        raise CannotStoreError("it carries credentials in a URL")


def _method_name(request: Request, role: str, spider: Spider) -> str | None:
    function = getattr(request, role)
    if function is None:
        return None
    # Scrapy looks at every member of the spider, which takes longer than all the rest.
    if ismethod(function) and getattr(spider, function.__name__, None) == function:
        return function.__name__
    try:
        return request.to_dict(spider=spider)[role]  # type: ignore[no-any-return]
    except ValueError as error:
        raise CannotStoreError(str(error)) from None


def _header_text(headers: Mapping[bytes, list[bytes]]) -> dict[str, list[str]]:
    return {k.decode("latin-1"): [v.decode("latin-1") for v in vs] for k, vs in headers.items()}


def _header_bytes(headers: Mapping[str, list[str]]) -> dict[bytes, list[bytes]]:
    return {k.encode("latin-1"): [v.encode("latin-1") for v in vs] for k, vs in headers.items()}


def _tagged(name: str, value: Any) -> dict[str, Any]:
    return {_TYPE: name, _VALUE: value}


_ENCODERS: Mapping[type, Callable[[Any], Any]] = {
    list: lambda value: [_encode(each) for each in value],
    tuple: lambda value: _tagged("tuple", [_encode(each) for each in value]),
    set: lambda value: _tagged("set", [_encode(each) for each in value]),
    frozenset: lambda value: _tagged("frozenset", [_encode(each) for each in value]),
    bytes: lambda value: _tagged("bytes", base64.b64encode(value).decode()),
    dt.datetime: lambda value: _tagged("datetime", value.isoformat()),
    dt.date: lambda value: _tagged("date", value.isoformat()),
    Decimal: lambda value: _tagged("decimal", str(value)),
}
_DECODERS: Mapping[str, Callable[[Any], Any]] = {
    "tuple": lambda value: tuple(map(_decode, value)),
    "set": lambda value: set(map(_decode, value)),
    "frozenset": lambda value: frozenset(map(_decode, value)),
    "bytes": base64.b64decode,
    "datetime": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
    "decimal": Decimal,
    "dict": lambda value: {_decode(k): _decode(v) for k, v in value},
}


def _encode(value: Any) -> Any:
    # Exact types only: a subclass would come back as something else.
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is dict:
        return _encode_dict(value)
    encoder = _ENCODERS.get(type(value))
    if encoder is None and isinstance(value, str) and type(value).__module__ == "lxml.etree":
        # The text of a link, as Scrapy's extractors return it, still knows its element.
        return str(value)
    if encoder is None:
        raise CannotStoreError(f"it holds a {type(value).__name__}")
    return encoder(value)


def _encode_dict(value: dict[Any, Any]) -> dict[str, Any]:
    if all(type(name) is str for name in value) and _TYPE not in value:
        return {name: _encode(each) for name, each in value.items()}
    return _tagged("dict", [[_encode(k), _encode(v)] for k, v in value.items()])


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(each) for each in value]
    if not isinstance(value, dict):
        return value
    if _TYPE in value:
        return _DECODERS[value[_TYPE]](value[_VALUE])
    return {name: _decode(each) for name, each in value.items()}
