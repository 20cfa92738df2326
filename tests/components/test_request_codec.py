"""Requests to JSON and back; what cannot be stored; no secret in a payload."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import json
import string
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import FormRequest, Request, Spider
from scrapy.http import HtmlResponse, JsonRequest, XmlRpcRequest
from scrapy.http.request import NO_CALLBACK
from scrapy.linkextractors import LinkExtractor

from scrapy_hexshard.components.request_codec import (
    LIVE_PAYLOAD,
    OWN,
    TOKEN,
    CannotStoreError,
    PayloadIsNoRequestError,
    decode_request,
    encode_request,
    holds_request,
    is_live,
    key_of,
)
from scrapy_hexshard.store.contract import check_payload

URL = "http://shop.example/p/1"


def logged(method: Any) -> Any:
    """A decorator of a plugin that hides the method's name."""

    def anonymous(self: Any, response: Any) -> Any:
        return method(self, response)

    return anonymous


class Shop(Spider):
    name = "shop"

    def page(self, response: Any) -> None: ...

    def failed(self, failure: Any) -> None: ...

    @logged
    def hidden(self, response: Any) -> None: ...

    @functools.wraps(page)
    def wrapped(self, response: Any) -> None: ...


SPIDER = Shop()
FIELDS = [
    "url",
    "method",
    "headers",
    "body",
    "meta",
    "encoding",
    "priority",
    "dont_filter",
    "flags",
    "cb_kwargs",
    "callback",
    "errback",
]


def stored(request: Request, key: str = URL) -> str:
    payload = encode_request(request, SPIDER, key)
    check_payload(payload, key)
    return payload


def again(request: Request, key: str = URL) -> Request:
    return decode_request(stored(request, key), SPIDER, key)


def assert_same(request: Request, back: Request) -> None:
    for name in FIELDS:
        assert getattr(back, name) == getattr(request, name), name


plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.binary(),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.timezones().map(lambda _: dt.timezone(dt.timedelta(minutes=330)))),
    st.decimals(allow_nan=False),
)
hashable = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(),
    st.binary(),
    st.dates(),
    st.decimals(allow_nan=False),
)
values = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(st.text(), inner),
        st.dictionaries(hashable, inner),
        st.sets(hashable),
        st.frozensets(hashable),
    ),
    max_leaves=12,
)
names = st.text(string.ascii_letters, min_size=1)
ours = {TOKEN, OWN, "proxy", "http_user", "http_pass", "ftp_user", "ftp_password"}


def typed(value: Any) -> Any:
    """*value* in a form that tells True from 1 and a tuple from a list."""
    if isinstance(value, dict):
        return {"dict": sorted(((typed(k), typed(v)) for k, v in value.items()), key=repr)}
    if isinstance(value, list | tuple):
        return type(value).__name__, [typed(each) for each in value]
    if isinstance(value, set | frozenset):
        return type(value).__name__, sorted(map(typed, value), key=repr)
    return type(value).__name__, repr(value) if isinstance(value, float) else value


@given(
    meta=st.dictionaries(names.filter(lambda name: name not in ours), values),
    cb_kwargs=st.dictionaries(names, values),
    flags=st.lists(st.text()),
    body=st.binary(),
    method=st.sampled_from(["GET", "POST", "PUT"]),
    priority=st.integers(-1000, 1000),
    dont_filter=st.booleans(),
    headers=st.dictionaries(names.map(lambda n: f"X-{n}"), st.text(string.printable.strip())),
    callback=st.sampled_from([None, SPIDER.page, SPIDER.hidden]),
    errback=st.sampled_from([None, SPIDER.failed]),
)
def test_what_is_documented_comes_back_as_it_was(meta, cb_kwargs, callback, errback, **fields):
    if callback is None:
        errback = None
    request = Request(
        URL, meta=meta, cb_kwargs=cb_kwargs, callback=callback, errback=errback, **fields
    )
    back = again(request)
    assert_same(request, back)
    assert typed(back.meta) == typed(request.meta)
    assert typed(back.cb_kwargs) == typed(request.cb_kwargs)


@pytest.mark.parametrize(
    "request_",
    [
        FormRequest(URL, formdata={"a": "b"}),
        JsonRequest(URL, data={"a": [1, 2]}),
        XmlRpcRequest(URL, methodname="m", params=("p",)),
        Request("http://other.example/x", meta={"shard_key": "sku-1"}),
        Request(URL, encoding="latin-1", body="é"),
        Request(URL, callback=SPIDER.wrapped),
    ],
)
def test_requests_of_scrapys_own_kinds_come_back(request_):
    assert_same(request_, again(request_))


def test_a_payload_leaves_out_what_is_as_usual():
    assert json.loads(stored(Request(URL))) == {"hexshard": 1}


def test_the_claim_of_an_attempt_is_not_stored():
    request = Request(URL, meta={TOKEN: 7, OWN: True, "mine": 1})
    assert again(request).meta == {"mine": 1}


def test_each_decoded_request_is_a_fresh_copy():
    payload = stored(Request(URL, meta={"list": [1]}))
    decode_request(payload, SPIDER, URL).meta["list"].append(2)
    assert decode_request(payload, SPIDER, URL).meta == {"list": [1]}


def test_a_dict_that_looks_like_a_stored_type_comes_back_as_a_dict():
    meta = {"odd": {"$type": "tuple", "$value": [1]}, "hexshard": 1}
    assert again(Request(URL, meta=meta)).meta == meta


SECRET = "s3cret"


@pytest.mark.parametrize(
    "request_",
    [
        Request(URL, cookies={"session": SECRET}),
        Request(URL, headers={"Cookie": f"session={SECRET}"}),
        Request(URL, headers={"Authorization": f"Bearer {SECRET}"}),
        Request(URL, headers={"proxy-authorization": f"Basic {SECRET}"}),
        Request(f"http://user:{SECRET}@shop.example/"),
        Request(URL, meta={"proxy": f"http://user:{SECRET}@proxy.example:8080"}),
        Request(URL, meta={"http_user": "me", "http_pass": SECRET}),
        Request("ftp://files.example/x", meta={"ftp_password": SECRET}),
    ],
)
def test_a_request_that_carries_a_secret_is_not_stored_and_the_reason_does_not_tell_it(request_):
    with pytest.raises(CannotStoreError) as refused:
        encode_request(request_, SPIDER, URL)
    assert SECRET not in str(refused.value)


class Own(str):
    __slots__ = ()


class OwnRequest(Request):
    pass


def circular() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


@pytest.mark.parametrize(
    "meta",
    [
        {"x": object()},
        {"x": Own("subclass")},
        {"x": OrderedDict(a=1)},
        {"x": float("nan")},
        {"x": float("inf")},
        {"x": 1 + 2j},
        {"x": range(3)},
        {"x": dt.timedelta(1)},
        {"x": [{"deep": {1: {object()}}}]},
        {"x": circular()},
        {"x": 10**5000},
        {"x": "long" * 300_000},
    ],
)
def test_a_value_that_would_not_come_back_as_it_is_cannot_be_stored(meta):
    with pytest.raises(CannotStoreError):
        encode_request(Request(URL, meta=meta), SPIDER, URL)


class Another(Shop):
    def elsewhere(self, response: Any) -> None: ...


@pytest.mark.parametrize(
    "request_",
    [
        Request(URL, callback=lambda response: None),
        Request(URL, callback=Another().elsewhere),
        Request(URL, callback=NO_CALLBACK),
        Request(URL, callback=SPIDER.page, errback=print),
        Request(URL, callback=functools.partial(SPIDER.page)),
        OwnRequest(URL),
    ],
)
def test_a_callback_that_is_no_method_of_the_spider_cannot_be_stored(request_):
    with pytest.raises(CannotStoreError):
        encode_request(request_, SPIDER, URL)


@pytest.mark.parametrize(
    "payload",
    [
        "1",
        "null",
        "[]",
        "{}",
        '{"n": 1}',
        '{"hexshard": 2}',
        '{"hexshard": 1, "callback": "gone"}',
        '{"hexshard": 1, "url": "no url"}',
        '{"hexshard": 1, "meta": {"$type": "os.system", "$value": 1}}',
        '{"hexshard": 1, "meta": {"$type": "decimal", "$value": "x"}}',
        '{"hexshard": 1, "headers": 7}',
        '{"hexshard": 1, "priority": "high"}',
    ],
)
def test_a_payload_that_is_no_request_is_refused(payload):
    with pytest.raises(PayloadIsNoRequestError):
        decode_request(payload, SPIDER, URL)


@given(
    payload=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    ["hexshard", "url", "meta", "$type", "$value", "headers", "callback"]
                ),
                inner,
            )
        ),
    ).map(lambda value: json.dumps({"hexshard": 1, "meta": value, "cb_kwargs": value}))
)
def test_whatever_is_stored_decodes_or_is_refused(payload):
    with contextlib.suppress(PayloadIsNoRequestError):
        assert isinstance(decode_request(payload, SPIDER, URL), Request)


def test_the_text_of_an_extracted_link_is_stored_as_text():
    page = HtmlResponse(URL, body=b"<a href='/p/2'>two</a>", encoding="utf-8")
    text = LinkExtractor().extract_links(page)[0].text
    assert type(text) is not str  # else this shows nothing
    request = Request(URL, meta={"link_text": text})
    decoded = decode_request(encode_request(request, SPIDER, URL), SPIDER, URL)
    assert decoded.meta == {"link_text": "two"}
    assert type(decoded.meta["link_text"]) is str


def test_a_live_payload_is_told_from_others():
    assert is_live(LIVE_PAYLOAD)
    assert holds_request(LIVE_PAYLOAD)
    assert holds_request(stored(Request(URL)))
    for other in (None, '{"n": 1}', "[]"):
        assert not is_live(other)
        assert not holds_request(other)


def test_the_key_of_a_request_is_its_shard_key_or_its_url():
    assert key_of(Request("HTTP://Shop.example:80/p#x")) == "http://shop.example/p"
    assert key_of(Request(URL, meta={"shard_key": " sku-1 "})) == "sku-1"
    assert key_of(Request(URL, method="POST", body=b"x")).startswith(f"POST {URL} ")
