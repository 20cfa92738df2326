from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_hexshard.errors import SettingError
from scrapy_hexshard.launcher.proxies import read_proxies
from scrapy_hexshard.proxy_url import parse_proxy


@pytest.mark.parametrize(
    "url",
    [
        "http://h",
        "http://h:8080",
        "http://h:8080/",
        "HTTP://h:1",
        "https://proxy.example:443",
        "socks5://h:1080",
        "socks5h://user:@h:1",
        "http://user:p%40ss@h:1",
        "http://user:p@ss@h:1",
        "http://user:p:w@h:1",
        "http://[2001:db8::1]:8080",
        "http://u:p@[::1]",
        "http://ünïcode:pässword@h:1",
    ],
)
def test_a_valid_proxy_is_taken_as_written(url):
    assert parse_proxy("PROXY_URL_0", f" {url}\n").url == url


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("h:8080", "no scheme"),
        ("user:secretword@h:8080", "no scheme"),
        ("http:h:8080", "no scheme"),
        ("ftp://user:secretword@h:1", "scheme other than http, https"),
        ("http://", "no host"),
        ("http://:8080", "no host"),
        ("http://user:secretword@", "no host"),
        ("http://h:99999", "port"),
        ("http://h:0", "port"),
        ("http://h:", "port"),
        ("http://h:80a", "port"),
        ("http://2001:db8::1:8080", "host"),
        ("http://hö.example:1", "host"),
        ("http://secretword@h:1", "without a password: write user:@host"),
        ("http://:secretword@h:1", "no user name"),
        ("http://@h:1", "no user name"),
        ("http://user:secret/word@h:1", "percent-encode"),
        ("http://user:secret#word@h:1", "percent-encode"),
        ("http://user:secret word@h:1", "space"),
        ("http://user:secret\x07word@h:1", "control character"),
        ("http://user:secretword@h:1/path", "no path or query"),
        ("http://user:secretword@h:1?x=1", "no path or query"),
        ("http://h:1//", "no path or query"),
    ],
)
def test_an_invalid_proxy_is_refused_by_name_and_rule_but_never_shown(url, rule):
    with pytest.raises(SettingError, match=rule) as caught:
        parse_proxy("PROXY_URL_3", url)
    message = str(caught.value)
    assert message.startswith("PROXY_URL_3 ")
    assert "secret" not in message.replace("may be secret", "")
    assert caught.value.__cause__ is None


@given(st.text())
def test_whatever_the_value_it_is_taken_or_refused_with_a_sentence(value):
    try:
        url = parse_proxy("PROXY_URL_0", value).url
    except SettingError as error:
        message = str(error)
    else:
        message = f"PROXY_URL_0 {url}"
        assert url == value.strip()
    assert message.startswith("PROXY_URL_0 ")


def test_empty_and_foreign_variables_are_no_proxies():
    environ = {
        "PROXY_URL_0": "",
        "PROXY_URL_1": "http://h:1",
        "PROXY_URL_2": "not read",
        "PROXY_URL": "nor this",
    }
    assert list(read_proxies(environ, 2)) == [1]


def test_credentials_are_secret_in_every_form():
    proxy = parse_proxy("PROXY_URL_0", "http://us%20er:p%40ss@h:1")
    assert {
        "http://us%20er:p%40ss@h:1",
        "us%20er:p%40ss",
        "us er:p@ss",
        "us%20er",
        "us er",
        "p%40ss",
        "p@ss",
        "dXMgZXI6cEBzcw",
    } <= proxy.secrets
    assert "h" not in proxy.secrets
    assert "p@ss" not in repr(proxy)
    assert "p%40ss" not in repr(proxy)
