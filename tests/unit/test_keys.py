# ruff: noqa: RUF001 (look-alike characters are what is tested)
"""The canonical form of a key: published, idempotent, and the same for what Scrapy makes of it."""

from __future__ import annotations

import gzip
import json
import re
import traceback
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scrapy import Request

from scrapy_hexshard import keys
from scrapy_hexshard.errors import InvalidKeyError
from scrapy_hexshard.keys import MAX_KEY_BYTES, canonical_key, digest, request_key
from scrapy_hexshard.sharding import ShardSpec, stable_owner

VECTORS = Path(__file__).parent.parent / "vectors"
# SHA-256 of the canonical forms of all real addresses, one a line: they are part of the plan too.
REAL_KEYS_DIGEST = "4c0eeb60305067955f44720d9b038b25a6098b0ab4dbf87c0eef1198dc7fb9e7"


def words(text: str, *others: str) -> st.SearchStrategy[str]:
    return st.sampled_from([*text.split(), *others])


# Parts that URLs go wrong with, put together in every way.
NONE = st.just("")
SCHEMES = words(
    "http https HTTP hTtps ftp ws wss file data about mailto javascript foo foo+bar x-y.z sftp git "
    "1a tel s3 ſttp fıle ﬁle",
    *("", "ht\ttp", "ht tp", "\x01http", "http\x00"),
)
SEPARATORS = words("://") | words(":// : :/ :\\\\ ::: // ::// :////", "", "\t://", ":/\n/")
USERINFOS = NONE | words(
    "user@ user:pass@ u:p:q@ u%40:p@ @ :@ u@v@ ü:ß@ u[:p@ u%zz:%2541@ %@ u/:p@",
    *("u\t:p@", "\ud800@"),
)
HOSTS = words("example.com Shop.Example münchen.de 192.0.2.1") | words(
    "ＥＸ.com [::1] [::FFFF:1.2.3.4] [fe80::1%25eth0] [v1.a] [1.2.3.4] [ [::1 ::1] x[::1] a..b"
    " .a a. xn--a a%20b a%2fb %41.com %ff a|b a^b a<b a`b a\"b a'b a\\b ß.de İ.com a﹕80 ａ／b"
    " ℀.com 日本.jp a。b ﹖a ﹫b . ..",
    *(
        "",
        "a b",
        "a\tb",
        "a\x7fb",
        "a\x00b",
        "a" * 64,
        "\ud800.com",
        "a\u200db",
        "a\xadb",
        "\u212a.com",
    ),
)
PORTS = NONE | words(
    ": :80 :443 :0 :08 :99999 :-1 :+80 :٨٠ :８０ :80a :65535 :65536 :1_0 :80:80 :²",
    *(": 80", ":8 0", ":8\t0", ":" + "9" * 5000),
)
PATHS = words("/ /products/123 /ä /%7Euser", "", "/a b") | words(
    "/%zz /% /%4 // /a//b /../x /;p a /[x] /| /\\x \\x /a:b@c /%c3 /\"<>`{} /^ /' @x /://",
    *("/\t", "/\x00", "/\x7f", "/\ud800", "/a\nb", " ", "/\xa0", "/\u2028"),
)
QUERIES = NONE | words(
    "?a=b ?b=2&a=1 ? ?? ?ä ?% ?\" ?' ?[ ?\\ ?/ ?# ?| ?^`{}<> ?u=http://x",
    *("?a b", "?\ud800", "?a\tb", "?\xa0"),
)
FRAGMENTS = NONE | words("# #f ## #ä #% #? #://", "# ", "#\ud800")
EDGES = NONE | words("\ufeff", " ", "\t", "\n", "\x00", "\x7f", "\xa0", " \x7f ")
NASTY_URLS = st.tuples(
    EDGES, SCHEMES, SEPARATORS, USERINFOS, HOSTS, PORTS, PATHS, QUERIES, FRAGMENTS, EDGES
).map("".join)
STREWN_URLS = st.builds(
    lambda url, at, inside: url[: at % (len(url) + 1)] + inside + url[at % (len(url) + 1) :],
    NASTY_URLS,
    st.integers(0, 100),
    st.sampled_from(list("\t\n\r \x00\\#?@:/%[]\x7f\xa0")),
)
ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))
INPUTS = st.one_of(NASTY_URLS, STREWN_URLS, ANY_TEXT)


def key_or_none(value: str) -> str | None:
    """The canonical key; only InvalidKeyError may stand in its way."""
    try:
        return canonical_key(value)
    except InvalidKeyError:
        return None


def requested(url: str) -> str | None:
    """What Scrapy makes of a URL, None if it refuses it."""
    try:
        return Request(url).url
    except ValueError:  # that of an encoding too
        return None


@pytest.fixture(scope="module")
def real_urls() -> list[str]:
    lines = gzip.decompress((VECTORS / "real-urls.txt.gz").read_bytes()).decode().split("\n")
    return [line for line in lines if line]


def test_the_published_vectors_hold() -> None:
    vectors: list[dict[str, Any]] = json.loads((VECTORS / "owners.json").read_bytes())["vectors"]
    assert len(vectors) > 200
    for vector in vectors:
        assert canonical_key(vector["input"]) == vector["canonical"]
        owners = {count: stable_owner(vector["input"], int(count)) for count in vector["owner"]}
        assert owners == vector["owner"], vector["input"]


class TestRealUrls:
    def test_their_canonical_forms_are_as_published(self, real_urls: list[str]) -> None:
        canonical = "\n".join(map(canonical_key, real_urls))
        assert sha256(canonical.encode()).hexdigest() == REAL_KEYS_DIGEST

    def test_all_are_valid_and_canonical_forms_stay(self, real_urls: list[str]) -> None:
        assert len(real_urls) > 45_000
        canonical = [canonical_key(url) for url in real_urls]
        assert [canonical_key(key) for key in canonical] == canonical

    def test_a_request_for_one_has_the_same_key(self, real_urls: list[str]) -> None:
        checked = 0
        for url in real_urls:
            if (made := requested(url)) is not None:
                checked += 1
                assert canonical_key(made) == canonical_key(url)
        assert checked > 45_000

    @pytest.mark.parametrize("count", [1, 2, 4, 7, 64])
    def test_each_key_has_exactly_one_owner(self, real_urls: list[str], count: int) -> None:
        specs = [ShardSpec(index, count) for index in range(count)]
        sample = real_urls if count < 64 else real_urls[::16]
        for url in sample:
            owners = [spec.index for spec in specs if spec.owns(url)]
            assert owners == [stable_owner(url, count)]

    def test_shards_are_even(self, real_urls: list[str]) -> None:
        distinct = set(map(canonical_key, real_urls))
        sizes = Counter(stable_owner(key, 64) for key in distinct)
        mean = len(distinct) / 64
        assert len(sizes) == 64
        assert max(abs(size - mean) for size in sizes.values()) <= 0.15 * mean


@settings(max_examples=1500, deadline=None)
@given(INPUTS)
@example("\x7fhttp:/a b")  # an id that becomes a URL once its ends are stripped
@example("foo://u%252541@")  # user information that two passes do not settle
def test_a_canonical_key_stays(value: str) -> None:
    key = key_or_none(value)
    if key is not None:
        assert canonical_key(key) == key
        assert 0 < len(key.encode()) <= MAX_KEY_BYTES


@settings(max_examples=1500, deadline=None)
@given(INPUTS)
@example("sftp:/a b")  # becomes sftp:///a%20b
@example("git:?x")
@example("http://h.example\xa0")  # one pass leaves a space behind the host
@example(" \ufeffhttp://h/")
def test_a_request_has_the_key_of_its_url(value: str) -> None:
    made = requested(value)
    if made is not None:
        assert key_or_none(made) == key_or_none(value)


PLAIN = st.text("abzABZ019-._~!$&()*+,;=:@%/?", max_size=12)
ODD = st.sampled_from(list(" \t\n\x00\x7f'\"#<>[\\]^`{|}é")) | NONE


@settings(max_examples=1500, deadline=None)
@given(
    words("http:// https:// HTTP:// ftp://"),
    st.lists(st.text("ab9-", min_size=1, max_size=5), min_size=1, max_size=3).map(".".join)
    | words("a..b .a a. a_b A [::1] a:80", "a" * 63, "a" * 64),
    words("/ /?", ""),
    PLAIN,
    ODD,
    PLAIN,
)
@example("https://", "h", "/", "a?", "", "")
@example("https://", "h", "/", "a", "\n", "")
def test_the_fast_path_is_the_long_one(
    scheme: str, host: str, slash: str, start: str, odd: str, end: str
) -> None:
    url = scheme + host + slash + start + odd + end
    if keys._PLAIN_URL.fullmatch(url):
        assert keys._canonical(url) == url


def test_the_fast_path_takes_most_real_urls_and_changes_none(real_urls: list[str]) -> None:
    plain = [url for url in real_urls if keys._PLAIN_URL.fullmatch(url)]
    assert len(plain) > 0.95 * len(real_urls)
    assert list(map(keys._canonical, plain)) == plain


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("http://münchen.de/ä?ö#ü", "http://xn--mnchen-3ya.de/%C3%A4?%C3%B6"),
        ("http://exa\tmple.com/a\nb", "http://example.com/ab"),
        ("http://h.example\\a\\%20b", "http://h.example/a/%20b"),
        ("http://[::FFFF]:80/A", "http://[::ffff]/A"),
        ("http://[::1]:8080", "http://[::1]:8080/"),
        ("wss://h.example:443", "wss://h.example/"),
        ("foo://HOST:80/x", "foo://host:80/x"),
        ("data:text/plain,a b", "data:text/plain,a%20b"),
        ("sku-1\x7f\x00 ", "sku-1"),
        ("a b\tc", "a b\tc"),
        ("\xa0Ünïcode\xa0", "\xa0Ünïcode\xa0"),
        ("shop.example/p/1#x", "shop.example/p/1#x"),
        ("fıle:Ä", "fıle:Ä"),
        ("nfs:Most Wanted", "nfs:Most Wanted"),
        ("C:/Data/file one.txt", "C:/Data/file one.txt"),
    ],
)
def test_canonical_form(value: str, key: str) -> None:
    assert canonical_key(value) == key


@pytest.mark.parametrize("value", ["", "   ", "\x00\t\n\x7f "])
def test_an_empty_key_is_refused(value: str) -> None:
    with pytest.raises(InvalidKeyError, match="cannot be empty"):
        canonical_key(value)


@pytest.mark.parametrize(
    "value",
    [
        "http://h:99999/",
        "http://h:-1/",
        "http://h:８０/",
        "http://h:²/",
        "http://h:80a/",
        "http://[::1/",
        "http://[1.2.3.4]/",
        "http://a b/",
        "http://a%\x00/",
        "http://a\x7f/",
        "http://ａ／b/",
    ],
)
def test_an_impossible_host_or_port_is_refused(value: str) -> None:
    with pytest.raises(InvalidKeyError, match=r"Not a valid URL: .*impossible host or port"):
        canonical_key(value)


@pytest.mark.parametrize("value", ["sku\ud800", "http://h/\ud800", "http://\udfff/", "a\udc80b"])
def test_a_lone_surrogate_is_refused(value: str) -> None:
    with pytest.raises(InvalidKeyError, match=r"[Nn]ot valid Unicode"):
        canonical_key(value)


@pytest.mark.parametrize("value", [None, 7, b"sku", ["sku"], object()])
def test_what_is_not_text_is_refused(value: Any) -> None:
    with pytest.raises(InvalidKeyError, match=f"not {type(value).__name__}"):
        canonical_key(value)


@pytest.mark.parametrize("one", ["a", "http://h/a", "http://h/ä", "ä"])
def test_the_size_limit_is_in_bytes_of_the_canonical_form(one: str) -> None:
    room = MAX_KEY_BYTES - len(canonical_key(one).encode())
    assert len(canonical_key(one + "x" * room).encode()) == MAX_KEY_BYTES
    with pytest.raises(InvalidKeyError, match=f"at most {MAX_KEY_BYTES} bytes; this one is 8193"):
        canonical_key(one + "x" * (room + 1))
    assert canonical_key("http://h/" + "#" + "f" * 10_000) == "http://h/"


SECRETS = ["hunter2", "hun/ter2", "hun?ter2", "hun#ter2", "hun@ter2", "hun\\ter2", "hun\tter2"]


@pytest.mark.parametrize("password", SECRETS)
@pytest.mark.parametrize(
    "url",
    [
        "http://alice:{}@h:99999/",
        "HTTP://alice:{}@[::1/",
        "http:\\\\alice:{}@h:x/",
        "//alice:{}@h/\ud800",
        "alice:{}@h/\ud800",
        "http://alice:{}@h/\ud800",
        "http://alice:{}@a b/",
        "alice:{}@h/" + "x" * 9000,
    ],
)
def test_no_error_shows_a_user_or_password(url: str, password: str) -> None:
    with pytest.raises(InvalidKeyError) as caught:
        canonical_key(url.format(password))
    shown = "".join(traceback.format_exception(caught.value))
    assert not re.search("alice|hun|ter2", shown)


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from(["http://", "//", "", "GET http://", "x:", "http:\\\\"]),
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.sampled_from(["h:99999/", "[/", "\ud800", "h/" + "y" * 9000]),
)
def test_no_error_shows_made_up_user_information(start: str, noise: str, end: str) -> None:
    try:
        canonical_key(f"{start}{noise}sEcReT{noise}@{end}")
    except InvalidKeyError as error:
        assert "sEcReT" not in str(error)  # noqa: PT017


def test_bytes_are_not_shown_either() -> None:
    with pytest.raises(InvalidKeyError) as caught:
        canonical_key(b"http://u:hunter2@h/")  # type: ignore[arg-type]
    assert "hunter2" not in str(caught.value)


class TestRequestKey:
    def test_a_plain_get_has_the_key_of_its_url(self) -> None:
        assert request_key("GET", "HTTP://H.example") == "http://h.example/"

    def test_any_other_request_has_its_method_and_body_in_the_key(self) -> None:
        empty, body = sha256(b"").hexdigest(), sha256(b"a=1").hexdigest()
        assert request_key("POST", "HTTP://h#f", b"a=1") == f"POST http://h/ {body}"
        assert request_key("post", "http://h/", b"a=1") == f"POST http://h/ {body}"
        assert request_key("HEAD", "http://h/") == f"HEAD http://h/ {empty}"
        assert request_key("GET", "http://h/", b"a=1") == f"GET http://h/ {body}"

    @settings(max_examples=300, deadline=None)
    @given(st.sampled_from(["GET", "POST", "put"]), INPUTS, st.binary(min_size=1, max_size=5))
    def test_it_is_canonical(self, method: str, url: str, body: bytes) -> None:
        try:
            key = request_key(method, url, body)
        except InvalidKeyError:
            return
        assert canonical_key(key) == key
        assert canonical_key(f" {key}\n") == key

    def test_a_spelling_of_it_is_made_canonical(self) -> None:
        body = sha256(b"").hexdigest()
        assert canonical_key(f"POST HTTP://u:p@H:80#f {body}") == f"POST http://h/ {body}"


def test_the_digest_is_sha256_of_utf_8() -> None:
    assert digest("ä") == sha256("ä".encode()).digest()
