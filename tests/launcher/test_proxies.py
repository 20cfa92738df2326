from __future__ import annotations

import os
import traceback
import urllib.request
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.downloadermiddlewares.httpproxy import HttpProxyMiddleware

from scrapy_hexshard.errors import SettingError
from scrapy_hexshard.launcher.ambient_proxies import ambient_names, crashing_names, proxy_names
from scrapy_hexshard.launcher.proxies import is_shard_variable, read_proxies
from scrapy_hexshard.launcher.proxy_files import MAX_FILE_BYTES
from scrapy_hexshard.proxy_url import parse_proxy, secrets_in


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
        "http://[::ffff:192.0.2.1]:1",
        "http://proxy.example.:1",
        f"http://{'h' * 63}.example:1",
        "http://ünïcode:pässword@h:1",
        "http://user:%20%7E%7e%80%C3%A9%2500@h:1",
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
        ("http://[2001:db8::1::2]:8080", "host"),
        ("http://[127.0.0.1]:8080", "host"),
        ("http://[::1]x:8080", "host"),
        ("http://[fe80::1%eth0]:8080", "host"),
        ("http://h..example:1", "host"),
        ("http://.example:1", "host"),
        (f"http://{'h' * 64}.example:1", "host"),
        (f"http://{'h.' * 127}h:1", "host"),
        ("http://hö.example:1", "host"),
        ("http://secretword@h:1", "without a password: write user:@host"),
        ("http://:secretword@h:1", "no user name"),
        ("http://@h:1", "no user name"),
        ("http://user:secret/word@h:1", "percent-encode"),
        ("http://user:secret#word@h:1", "percent-encode"),
        ("http://user:secret word@h:1", "space"),
        ("http://user:secret\x07word@h:1", "control character"),
        *[
            (f"http://user:secret%{code}word@h:1", r"a control character \(%00 to %1F, or %7F\)")
            for code in ("00", "0a", "0D", "1f", "1B", "7F", "7f")
        ],
        ("http://user%0D%0Asecret:word@h:1", "control character"),
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


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("http://h", ("http", "h", 80, None)),
        ("HTTPS://H.Example/", ("https", "h.example", 443, None)),
        ("socks5h://us%20er:p%40ss@h", ("socks5h", "h", 1080, ("us er", "p@ss"))),
        ("socks5://user:@h:1", ("socks5", "h", 1, ("user", ""))),
        ("http://u:p:w@[2001:DB8::1]:8080", ("http", "2001:db8::1", 8080, ("u", "p:w"))),
    ],
)
def test_the_parts_of_a_proxy_are_told(url, parts):
    proxy = parse_proxy("PROXY_URL_0", url)
    assert (proxy.scheme, proxy.host, proxy.port, proxy.login) == parts
    assert proxy.identity == parts


# Where the proxy of a shard is read from.


def urls(environ: dict[str, str], shards: int = 4) -> dict[int, str]:
    return {shard: each.proxy.url for shard, each in read_proxies(environ, shards).items()}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "proxy"
    path.touch(0o600)
    return path


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_proxy_may_be_in_a_file(file, mark, end):
    file.write_bytes(f"{mark}http://user:pässword@h:1{end}".encode())
    environ = {"PROXY_URL_FILE_1": str(file), "PROXY_URL_1": "", "PROXY_URL_FILE_0": " "}
    assert urls(environ) == {1: "http://user:pässword@h:1"}


def test_a_file_may_be_a_link_or_a_pipe(file, tmp_path):
    file.write_text("http://user:hushhush@h:1\n")
    (tmp_path / "link").symlink_to(file)
    assert urls({"PROXY_URL_FILE_0": str(tmp_path / "link")}) == {0: "http://user:hushhush@h:1"}
    read, write = os.pipe()
    os.write(write, b"http://user:hushhush@h:2\n")
    os.close(write)
    found = read_proxies({"PROXY_URL_FILE_0": f"/dev/fd/{read}"}, 1)
    assert found[0].proxy.url == "http://user:hushhush@h:2"
    assert not found[0].source.open_to_others
    os.close(read)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o604, 0o644, 0o620])
def test_a_file_that_others_can_read_is_noted(file, mode):
    file.write_text("http://h:1")
    file.chmod(mode)
    (found,) = read_proxies({"PROXY_URL_FILE_0": str(file)}, 1).values()
    assert found.source.open_to_others is bool(mode & 0o044)


@pytest.mark.parametrize("variable", ["PROXY_URL_FILE_0", "PROXY_URL_TEMPLATE_FILE"])
@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "a file that is empty"),
        (b" \n", "a file that is empty"),
        (b"http://user:hushhush@h:1\nhttp://user:hushhush@h:2\n", "a file of several lines"),
        (b"\nhttp://user:hushhush@h:1", "a file of several lines"),
        (b"http://user:hushhush@h:1\n\n", "a file of several lines"),
        (b"http://user:hushhush@h:1\rx", "a file of several lines"),
        (b"http://user:hushhush\xff@h:1", "not UTF-8"),
        (b"\xff\xfeh\0u\0s\0h\0", "not UTF-8"),
        (b"http://user:hushhush@h:1" + b"x" * MAX_FILE_BYTES, "more than 8,192 bytes"),
        (b"user:hushhush@h:1", "has no scheme"),
        (b"http://hushhush@h:1", "without a password"),
        (b"http://user:hush\0hush@h:1", "control character"),
    ],
)
def test_a_file_that_holds_no_proxy_is_refused_without_a_word_of_it(file, variable, content, rule):
    file.write_bytes(content)
    with pytest.raises(SettingError, match=rule) as caught:
        read_proxies({variable: str(file)}, 2)
    assert str(caught.value).startswith(f"{variable} ({file}) ")
    assert "hush" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("variable", ["PROXY_URL_FILE_0", "PROXY_URL_TEMPLATE_FILE"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, variable):
    for path, reason in [(tmp_path, "Is a directory"), (tmp_path / "no", "No such file")]:
        with pytest.raises(SettingError, match=f"cannot be read: {reason}") as caught:
            read_proxies({variable: str(path)}, 2)
        assert str(caught.value).startswith(f"{variable} ({path}) ")


@pytest.mark.parametrize(
    "value",
    [
        "http://user:hushhush@h:1",
        "//user:hushhush@h:1",
        "user:hushhush@h:1",
        "http:user:hushhush",
        "/hush\nhush",
        "hushhush",
    ],
)
def test_what_stands_in_the_place_of_a_path_is_not_shown(value):
    with pytest.raises(SettingError, match=r"PROXY_URL_FILE_0 names a file that") as caught:
        read_proxies({"PROXY_URL_FILE_0": value}, 1)
    assert "hush" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("one", "other"),
    [("PROXY_URL_2", "PROXY_URL_FILE_2"), ("PROXY_URL_TEMPLATE", "PROXY_URL_TEMPLATE_FILE")],
)
def test_a_proxy_that_is_given_twice_is_refused(file, one, other):
    file.write_text("http://user:hushhush@h:1")
    with pytest.raises(SettingError, match=rf"^{one} and {other} are both set") as caught:
        read_proxies({one: "http://user:hushhush@h:1", other: str(file)}, 4)
    assert "hush" not in str(caught.value)


def test_a_template_serves_every_shard_without_a_proxy_of_its_own(file):
    file.write_text("http://file:x@h:1")
    environ = {
        "PROXY_URL_TEMPLATE": " http://u-session-{shard}-{shards}:{{shard}}@h-{shard}:1{shard}00/\n",
        "PROXY_URL_0": "http://own:x@h:1",
        "PROXY_URL_1": " ",
        "PROXY_URL_FILE_2": str(file),
    }
    assert urls(environ) == {
        0: "http://own:x@h:1",
        1: "http://u-session-1-4:{shard}@h-1:1100/",
        2: "http://file:x@h:1",
        3: "http://u-session-3-4:{shard}@h-3:1300/",
    }
    found = read_proxies(environ, 4)
    assert {"u-session-3-4", "u-session-3-4:{shard}"} <= found[3].proxy.secrets
    assert "session" not in repr(found)


def test_a_template_may_be_in_a_file(file):
    file.write_text("http://u-{shard}:x@h:1\n")
    environ = {"PROXY_URL_TEMPLATE_FILE": str(file)}
    assert urls(environ, 2) == {0: "http://u-0:x@h:1", 1: "http://u-1:x@h:1"}


@pytest.mark.parametrize("braces", ["{shrad}", "{session}", "{}", "{{session}}", "{shard:02}"])
def test_braces_of_a_template_that_nothing_fills_in_are_refused(braces):
    environ = {"PROXY_URL_TEMPLATE": f"http://u-{braces}-{{shard}}:hushhush@h:9999"}
    with pytest.raises(SettingError, match=r"^PROXY_URL_TEMPLATE has something in braces") as error:
        read_proxies(environ, 2)
    assert "neither {shard} nor {shards}" in str(error.value)
    assert all(
        secret not in str(error.value) for secret in ("hush", "u-", "shrad", "session", "h:")
    )


def test_a_single_brace_or_a_literal_one_of_a_template_stays():
    environ = {"PROXY_URL_TEMPLATE": "http://u-{shard}:{{shard}}{hush%7Bx%7D@h:9999"}
    assert "{shard}{hush" in read_proxies(environ, 1)[0].proxy.url


def test_a_template_is_checked_once_it_is_filled_in():
    environ = {"PROXY_URL_TEMPLATE": "http://u:hushhush@h:9999{shard}", "PROXY_URL_0": "http://h"}
    with pytest.raises(SettingError, match=r"^PROXY_URL_TEMPLATE for shard 1 has an impossible"):
        read_proxies(environ, 3)
    assert list(read_proxies(environ, 1)) == [0]  # nobody needs it there


def test_every_variable_of_these_is_kept_from_the_workers():
    for name in ("0", "FILE_0", "FILE", "TEMPLATE", "TEMPLATE_FILE", "X"):
        assert is_shard_variable(f"PROXY_URL_{name}")
    assert not is_shard_variable("PROXY_URL")


# Variables that any program reads.


@pytest.mark.parametrize("name", ["HTTP_PROXY", "https_proxy", "All_Proxy", "PROXY_URL"])
def test_what_sets_a_proxy_for_any_program_is_ambient(name):
    assert ambient_names({name: "x", "NO_PROXY": "x", "MY_PROXY": "x"}) == [name]


SCRAPY_READS = [
    "http://u:p@h:1",
    "http://u:@h:1",
    "http://u@h:1",
    "HTTP://u%40@h:1",
    "//u@h:1",
    "/u@h:1",
    "u@h:1",
    "u:p@h:1",
    "u:p//x@h",
    "http:/u@h",
    "http:u@h",
    "http://a@b/c:d@e",
    "http://a/b:c@d",
    "http://a/b@d",
    "http://a:b@c/d@e",
    "http://:p@h",
    "http://@h",
    "h:1",
    "/var/run/docker.sock",
    "://u@h",
    ":u@h",
    "",
]


def crashes_scrapy(value: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(urllib.request, "getproxies", lambda: {"http": value} if value else {})
    monkeypatch.setattr(
        "scrapy.downloadermiddlewares.httpproxy.getproxies", urllib.request.getproxies
    )
    try:
        HttpProxyMiddleware("utf-8")
    except TypeError:
        return True
    return False


@pytest.mark.parametrize("value", SCRAPY_READS)
def test_what_scrapy_fails_on_is_known_beforehand(value, monkeypatch):
    assert bool(crashing_names({"HTTP_PROXY": value})) == crashes_scrapy(value, monkeypatch)


@given(st.lists(st.sampled_from(["http", *":/@up%é"]), max_size=9).map("".join))
def test_what_scrapy_fails_on_is_known_whatever_it_is(value):
    with pytest.MonkeyPatch.context() as patch:
        assert bool(crashing_names({"x_proxy": value})) == crashes_scrapy(value, patch)


def test_some_of_it_crashes_and_some_does_not(monkeypatch):
    crashing = [value for value in SCRAPY_READS if crashes_scrapy(value, monkeypatch)]
    assert "http://u@h:1" in crashing
    assert "http://u:@h:1" not in crashing


def test_scrapy_reads_every_variable_whose_name_ends_like_that(monkeypatch):
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    names = ["HTTP_PROXY", "My_Proxy", "no_proxy"]
    for name in names:
        monkeypatch.setenv(name, f"http://{name}:1")
    assert sorted(urllib.request.getproxies_environment().values()) == sorted(
        f"http://{name}:1" for name in names
    )
    assert proxy_names(os.environ) == sorted(names)


@pytest.mark.parametrize(
    ("value", "secret"),
    [
        ("http://user:hushhush@h", "hushhush"),
        ("user:hushhush@h", "hushhush"),
        ("//user:hushhush@h", "hushhush"),
        ("http:user:hushhush@h", "hushhush"),
        ("http://user:hush//hush@h", "hush//hush"),
        ("user:hush//hush@h", "hush//hush"),
        ("http://http://user:hushhush@h", "hushhush"),
        ("http://user:hush%2Fhush@h", "hush/hush"),
    ],
)
def test_secrets_are_found_in_a_value_that_nobody_has_checked(value, secret):
    found = secrets_in([value])
    assert {value, secret} <= found
    assert not found & {"http", "h"}
