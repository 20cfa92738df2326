from __future__ import annotations

import base64
import json
import shlex
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_hexshard.launcher.lines import RedactedLines
from scrapy_hexshard.proxy_url import parse_proxy
from scrapy_hexshard.redaction import REDACTED, Redactor

# Few characters, so that secrets and the text around them overlap; no *, which stands for a secret.
LETTERS = "ab%4é/ @'\\\"+=.:"
SECRETS = st.lists(st.text(LETTERS, min_size=4, max_size=12), min_size=1, max_size=4)
SPELLINGS = [
    str,
    quote,
    quote_plus,
    lambda text: quote(text, safe=""),
    lambda text: quote(text, safe="").lower(),
    lambda text: json.dumps(text)[1:-1],
    lambda text: repr(text)[1:-1],
    lambda text: repr(text.encode())[2:-1],
]


@st.composite
def chatter(draw):
    """Secrets, and chunks of a stream that holds them in many spellings."""
    secrets = draw(SECRETS)
    spelled = st.builds(
        lambda spell, secret: spell(secret), st.sampled_from(SPELLINGS), st.sampled_from(secrets)
    )
    pieces = draw(st.lists(spelled | st.text(LETTERS + "\n", max_size=20), max_size=12))
    stream = "".join(pieces).encode()
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    chunks = [
        stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
    ]
    return secrets, stream, chunks


@given(chatter(), st.integers(1, 40))
def test_however_a_stream_is_cut_it_shows_the_same_and_no_secret(case, limit):
    secrets, stream, chunks = case
    redactor = Redactor(secrets)
    lines = RedactedLines(redactor, limit)
    shown = b"".join([*(line for chunk in chunks for line in lines.feed(chunk)), lines.end()])
    assert shown == redactor.hide(stream)
    for secret in secrets:
        for spell in SPELLINGS:
            assert spell(secret).encode() not in shown


@given(chatter(), st.integers(1, 40))
def test_a_line_comes_whole_or_in_pieces_and_never_joined_to_another(case, limit):
    secrets, _, chunks = case
    lines = RedactedLines(Redactor(secrets), limit)
    for line in (line for chunk in chunks for line in lines.feed(chunk)):
        assert line
        assert b"\n" not in line[:-1]


def test_a_line_without_an_end_does_not_grow_for_ever():
    lines = RedactedLines(Redactor(["hushhush"]), limit=1000)
    pieces = [piece for _ in range(100) for piece in lines.feed(b"x" * 900)]
    assert max(map(len, pieces)) < 3000
    assert b"".join(pieces) + lines.end() == b"x" * 90_000


@pytest.mark.parametrize(
    "text",
    [
        "proxy http://scraper:p%40ss@h:1 refused",
        "user scraper",
        "p@ss",
        "p%40ss",
        "Proxy-Authorization: Basic {basic}",
        "{{'proxy': 'http://scraper:p%40ss@h:1'}}",
        "https%3A%2F%2Fx%2F%3Fproxy%3Dhttp%3A%2F%2Fscraper%3Ap%2540ss%40h%3A1",
    ],
)
def test_the_credentials_of_a_proxy_are_hidden(text):
    proxy = parse_proxy("PROXY_URL_0", "http://scraper:p%40ss@h:1")
    basic = base64.b64encode(b"scraper:p@ss").decode()
    shown = Redactor(proxy.secrets).hide_text(text.format(basic=basic))
    assert REDACTED.decode() in shown
    for secret in ("scraper", "p@ss", "p%40ss", "p%2540ss", basic.rstrip("=")):
        assert secret not in shown


@pytest.mark.parametrize("secret", ["it's-ours", "hush😀hush", "hush€hush", "hush\udcffhush"])
@pytest.mark.parametrize(
    "spell",
    [
        str,
        shlex.quote,
        lambda text: f"'{text.replace(chr(39), chr(39) + chr(92) + chr(39) * 2)}'",  # sh -x
        lambda text: ascii(text)[1:-1],
        lambda text: text.encode("ascii", "backslashreplace").decode(),
    ],
)
def test_a_secret_is_hidden_as_shells_and_narrow_terminals_write_it(secret, spell):
    assert Redactor([secret]).hide_text(f"a {spell(secret)} b") in {
        "a *** b",
        "a '***' b",
    }


def test_text_that_is_no_unicode_hides_nothing_from_it():
    for stray in ("\udcff", "\ud800", "\udcff\ud800"):
        assert Redactor(["hush€hush"]).hide_text(f"{stray} hush€hush").endswith(" ***")


def test_nothing_is_hidden_without_secrets():
    redactor = Redactor([])
    assert redactor.hide(b"a\xffb") == b"a\xffb"
    assert redactor.split(b"abc") == (b"abc", b"")


def test_a_short_secret_is_hidden_within_its_credentials_alone():
    proxy = parse_proxy("PROXY_URL_0", "http://ab:cd@h:1")
    redactor = Redactor(proxy.secrets)
    assert redactor.hide_text("abandon ab:cd http://ab:cd@h:1 YWI6Y2Q=") == "abandon *** *** ***="
