"""Ten thousand proxy URLs, each with secrets of its own, through all that can go wrong with them.

No output of any kind may hold a secret. They are random words, so that none is there by chance.
"""

from __future__ import annotations

import base64
import itertools
import json
import logging
import os
import random
import re
import socket
import string
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple
from unittest import mock
from urllib.parse import quote, quote_plus, unquote

import pytest

from scrapy_hexshard import proxy_url, redaction
from scrapy_hexshard.components import secret_filter
from scrapy_hexshard.components.secret_filter import SecretFilter
from scrapy_hexshard.errors import HexShardError, LaunchError, SettingError
from scrapy_hexshard.launcher import launch, plan, proxy_check, reports
from scrapy_hexshard.launcher.announcements import obituary
from scrapy_hexshard.launcher.console import Console
from scrapy_hexshard.launcher.launch import check_command
from scrapy_hexshard.launcher.lines import RedactedLines
from scrapy_hexshard.launcher.live_workers import Observer
from scrapy_hexshard.launcher.logs import ShardOutput
from scrapy_hexshard.launcher.placeholders import fill
from scrapy_hexshard.launcher.plan import Plan, ProcessSpec, make_plan
from scrapy_hexshard.launcher.proxy_check import NO_SITE, Target, check_proxies, parse_target
from scrapy_hexshard.launcher.reports import Totals
from scrapy_hexshard.launcher.restarts import Restarts
from scrapy_hexshard.launcher.summary import summarize
from scrapy_hexshard.launcher.summary_file import summary_facts
from scrapy_hexshard.launcher.worker import Worker
from scrapy_hexshard.proxy_url import Proxy, parse_proxy
from scrapy_hexshard.redaction import Redactor

CASES = 10_000
SEED = 7_919

SCHEMES = ("http", "https", "socks5", "socks5h", "HTTP", "Socks5")
HOSTS = ("h", "proxy.example", "127.0.0.1", "[2001:db8::1]", "[::1]")
# What stands between the random words of a user name or password, mostly nothing at all.
PIECES = (
    *[""] * 120,
    *("-", "_", ".", "~", "%40", "@", ":", "%3A", "%2F", "%2f", "%25", "%", "%zz", "%FF", "%C3%A9"),
    *("é", "ß", "€", "你", "😀", "%F0%9F%98%80", "\u202e", "'", '"', "\\", "`", "$", "+", "=", "&"),
    *("|", "*", "(?:", "[", "]", "{}", "{shard}", "{{shard}}", "{shards}", "<b>", "!", ";", ","),
)
WRONG_PIECES = (
    "/",
    "//",
    "?",
    "#",
    " ",
    "\t",
    "\r",
    "\x07",
    "\x1b[31m",
    "\x85",
    "\udcff",
    "\u2028",
    *("%00", "%0a", "%0D%0A", "%1b", "%7F"),
)
VALID = (
    "{scheme}://{user}:{password}@{host}:8080",
    "{scheme}://{user}:{password}@{host}/",
    "{scheme}://{user}:{password}@{host}",
    "{scheme}://{user}:@{host}:1",
)
INVALID = (
    "{user}:{password}@{host}:8080",
    "//{user}:{password}@{host}:8080",
    "{scheme}:{user}:{password}@{host}",
    "{scheme}:/{user}:{password}@{host}",
    "{scheme}:///{user}:{password}@{host}",
    "{scheme}://{scheme}://{user}:{password}@{host}",
    "ftp://{user}:{password}@{host}",
    "x{scheme}://{user}:{password}@{host}",
    "{scheme}://{user}@{host}:1",
    "{user}@{host}",
    "{scheme}://:{password}@{host}",
    "{scheme}://{user}:{password}@",
    "{scheme}://{user}:{password}@:8080",
    "{scheme}://{user}:{password}@{host}:99999",
    "{scheme}://{user}:{password}@{host}:{password}",
    "{scheme}://{user}:{password}@{host}/{password}",
    "{scheme}://{user}:{password}@{host}?{password}",
    "{scheme}://{user}:{password}@{host}#{password}",
    "{scheme}://{user}:{password}@[::{password}]:1",
    "{scheme}://{user}:{password}@hö.example",
    "{scheme}://{user}:{password}",
    "/{user}:{password}@{host}",
    "{password}",
)


class Case(NamedTuple):
    """A value that a user may have given as a proxy, and the random words in it."""

    value: str
    user: str
    password: str
    words: tuple[str, ...]

    @property
    def texts(self) -> list[str]:
        """What may be echoed of it."""
        pair = f"{self.user}:{self.password}"
        parts = [self.value, pair, self.user, self.password]
        return [part for part in [*parts, *map(unquote, parts)] if part]

    @property
    def credentials(self) -> list[str]:
        """It as basic credentials."""
        pair = f"{unquote(self.user)}:{unquote(self.password)}"
        encoded = (pair.encode(codec, "replace") for codec in ("utf-8", "latin-1"))
        return [base64.b64encode(each).decode().rstrip("=") for each in encoded]


def make_case(rng: random.Random) -> Case:
    wrong = rng.random() < 0.1
    words = ["".join(rng.choices(string.ascii_lowercase + string.digits, k=9)) for _ in range(3)]
    pieces = [rng.choice(WRONG_PIECES if wrong and n == 2 else PIECES) for n in range(4)]
    user = words[0] + pieces[0].replace(":", "-") + words[1]
    password = pieces[1] + words[2] + pieces[2] + pieces[3]
    form = rng.choice(VALID if rng.random() < 0.5 else INVALID)
    if form in INVALID:  # there, what follows an @ could be the host
        user, password = user.replace("@", "-"), password.replace("@", "-")
    value = form.format(
        scheme=rng.choice(SCHEMES),
        user=user,
        password=password,
        host=rng.choice(HOSTS),
    )
    told = tuple(word for word in words if word in value)
    return Case(value, user if "{user}" in form else "", password * ("{pass" in form), told)


# What becomes of it.


def told(error: BaseException) -> str:
    """All that is said of an error."""
    return f"{error} {error!r} {''.join(traceback.format_exception(error))}"


def parsing(case: Case, rng: random.Random, file: Path) -> Iterator[str]:
    try:
        proxy = parse_proxy("PROXY_URL_3", case.value)
    except SettingError as error:
        yield told(error)
        return
    yield f"{proxy!r} {proxy}"
    if "socks" not in proxy.scheme:
        try:
            proxy.credentials("ascii")
        except SettingError as error:
            yield told(error)


def targets(case: Case, rng: random.Random, file: Path) -> Iterator[str]:
    if rng.random() < 0.8:  # it has little to tell
        return
    try:
        parse_target(case.value)
    except SettingError as error:
        yield told(error)


def variables(case: Case, rng: random.Random, file: Path) -> Iterator[tuple[dict[str, str], bool]]:
    """Environments in which the value stands, and whether ambient proxies are inherited."""
    value = case.value
    yield {"PROXY_URL_0": value}, False
    environ, inherit = rng.choice(
        [
            ({"PROXY_URL_FILE_0": str(file)}, False),
            ({"PROXY_URL_TEMPLATE_FILE": str(file)}, False),
            ({"PROXY_URL_0": value, "PROXY_URL_FILE_0": str(file)}, False),
            ({"PROXY_URL_FILE_0": value}, False),
            ({"PROXY_URL_TEMPLATE": value}, False),
            ({"PROXY_URL_TEMPLATE": value, "PROXY_URL_1": value, "PROXY_URL_9": value}, False),
            ({"PROXY_URL": value, "HTTP_PROXY": value, "PROXY_URL_X": value}, False),
            ({"PROXY_URL": value}, True),
            ({"HTTP_PROXY": value, "all_proxy": value}, True),
            ({"MY_PROXY": value}, rng.random() < 0.5),
        ]
    )
    if str(file) in environ.values():
        end = rng.choice(["", "", "\n", "\r\n", "\n\n", f"\n{value}", "x" * 9000])
        file.unlink(missing_ok=True)  # to write over it takes longer
        file.write_bytes(f"{value}{end}".encode(errors="surrogateescape"))
    yield environ, inherit


def checking(case: Case, rng: random.Random, file: Path) -> Iterator[str]:
    if rng.random() < 0.7:  # each takes a thread or two
        return
    try:
        proxies = {shard: parse_proxy("PROXY_URL_3", case.value) for shard in (3, 4)}
    except SettingError:
        return
    said: list[str] = []
    target = rng.choice([NO_SITE, Target("http", "h", 80), Target("https", "h", 443)])
    with mock.patch.object(proxy_check, "_connect", partial(parrot, rng.choice(ANSWERS))):
        check_proxies(proxies, target, said.append)
    assert len(said) == 2
    yield "\n".join(said)


ANSWERS = (
    *(b"HTTP/1.1 502 %s\r\n\r\n", b"HTTP/1.1 407 %s\r\n\r\n", b"%s\r\n\r\n", b"\x05\x00%s"),
    *(b"HTTP/1.1 %s\r\n\r\n", b"HTTP/1.1 200 OK\r\n%s\r\n\r\n", b"\x05\x02%s"),
)


def parrot(answer: bytes, proxy: Proxy) -> socket.socket:
    """A connection to a proxy that answers with all that it knows of its client."""
    ours, theirs = socket.socketpair()
    login = " ".join(proxy.login or ()).encode()
    theirs.sendall(answer.replace(b"%s", proxy.url.encode() + b" " + login))
    theirs.shutdown(socket.SHUT_WR)
    held.append(theirs)
    if len(held) > 64:
        held.popleft().close()
    return ours


held: deque[socket.socket] = deque()  # closed at once, they would cut off what was asked


def planning(case: Case, rng: random.Random, file: Path) -> Iterator[str]:
    for environ, inherit in variables(case, rng, file):
        command = ("curl", "-x", case.value, *rng.choices(case.texts, k=2), "{shard}")
        try:
            made = make_plan(command, 2, environ, inherit_proxy=inherit)
        except HexShardError as error:
            yield told(error)
        else:
            yield from running(made, case, rng)


def running(made: Plan, case: Case, rng: random.Random) -> Iterator[str]:
    yield f"{made!r} {made.specs[0]!r} {' '.join(made.notices)}"
    knows = [spec for spec in made.specs if spec.secrets]
    given = [spec for spec in made.specs if any("@" in value for value in spec.environ.values())]
    assert all(spec in knows for spec in given)
    if not knows or rng.random() < 0.5:  # to learn what to hide takes most of the time
        return
    if "{shard" not in unquote(case.value):  # else the command has other words in it
        yield made.describe()
    spec = rng.choice(knows)
    yield from echoing(spec, filled_in(case, spec), rng)


def filled_in(case: Case, spec: ProcessSpec) -> Case:
    """What the worker has of it, where it was a template."""
    parts = (fill(part, spec.shard, 2) for part in case[:3])
    filled = Case(*parts, case.words)
    return filled if spec.proxy and spec.proxy.url == filled.value.strip() else case


SPELLINGS: tuple[Callable[[str], str | bytes], ...] = (
    str,
    quote,
    lambda text: quote(text, safe=""),
    lambda text: re.sub("%..", lambda match: match[0].lower(), quote(text, safe="")),
    quote_plus,
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: repr(text)[1:-1],
    lambda text: ascii(text)[1:-1],
    lambda text: repr(text.encode(errors="surrogateescape"))[2:-1],
    lambda text: text.encode("ascii", "backslashreplace"),
    lambda text: text.encode("latin-1", "backslashreplace"),
)


def echoes(case: Case, rng: random.Random) -> list[bytes]:
    """Some of what a worker may say of its proxy."""
    spelled = []
    for text in rng.choices([text for text in case.texts if "\udcff" not in text] or ["x"], k=4):
        each = rng.choice(SPELLINGS)(text)
        spelled.append(each if isinstance(each, bytes) else each.encode())
    return [*spelled, f"Basic {rng.choice(case.credentials)}=".encode()]


def echoing(spec: ProcessSpec, case: Case, rng: random.Random) -> Iterator[str]:
    said = b" at ".join(echoes(case, rng))
    yield lines_of(spec, said + b"\nagain: " + said, rng)
    text = said.decode(errors="surrogateescape")
    yield logged(spec, text)
    yield summed_up(spec, text, rng)
    try:
        check_command(ProcessSpec(0, (f"no/{case.value}",), {}, spec.secrets))
    except LaunchError as error:
        yield told(error)


def lines_of(spec: ProcessSpec, stream: bytes, rng: random.Random) -> str:
    """What the launcher shows of a worker's output."""
    lines = RedactedLines(plan.Redactor(spec.secrets), limit=rng.choice([1, 40, 65_536]))
    cuts = sorted(rng.choices(range(len(stream) + 1), k=5))
    shown = [
        line
        for start, end in itertools.pairwise([0, *cuts, len(stream)])
        for line in lines.feed(stream[start:end])
    ]
    return b"".join([*shown, lines.end()]).decode(errors="replace")


def logged(spec: ProcessSpec, text: str) -> str:
    """What the worker itself logs."""
    net = SecretFilter()
    net.add(spec.secrets)
    error = (ValueError, ValueError(text), None)
    record = logging.LogRecord("x", logging.ERROR, "x.py", 1, "a %s", (text,), error, sinfo=text)
    net.filter(record)
    return logging.Formatter().format(record)


@cache
def nowhere() -> Console:
    hole = os.open(os.devnull, os.O_WRONLY)
    return Console(hole, hole)


FIELDS = ("event", "pid", "spider", "shard", "shards", "keys", "open", *asdict(Totals()))


def summed_up(spec: ProcessSpec, text: str, rng: random.Random) -> str:
    """What the launcher says of a worker that reports such things, and closed for such a reason."""
    output = ShardOutput(spec.shard, plan.Redactor(spec.secrets), nowhere())
    worker = Worker(spec, output, Restarts(0, 1.0), grace=1.0)
    told = rng.choice([text, [text], {text: text}])
    for report in (
        {"event": "opened", "shard": spec.shard, rng.choice(FIELDS): told},
        {"event": "progress", "done": 1, rng.choice(FIELDS): told},
        {"event": "closed", "reason": text, "detail": told, "fault": told, "fault_times": 1},
    ):
        worker._reports.feed(json.dumps(report).encode() + b"\n")
    seen = Observer([worker]).look(1.0)
    life = worker.bury(1.0)
    assert life.reason
    last = obituary(worker.verdict, life, rng.choice([None, 1.0]), None)
    facts = json.dumps(summary_facts([worker], 1, None), ensure_ascii=False)
    shown = f"{seen.sentence()} {seen.picture(24)} {Observer([worker]).look(2.0).picture(24)}"
    return f"{worker!r} {life!r} {last} {summarize([worker])} {facts} {shown}"


# The search.

PATHS = {"parsing": parsing, "targets": targets, "checking": checking, "planning": planning}


def leaks(cases: int, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Each case of which something was told, with the path and what was told."""
    rng = random.Random(SEED)
    file = folder / "proxy"
    for _ in range(cases):
        case = make_case(rng)
        secrets = [*case.words, *(each for each in case.credentials if len(each) > 8)]
        for path, follow in PATHS.items():
            for output in follow(case, rng, file):
                if any(secret in output for secret in secrets):
                    yield ascii(case), path, ascii(output)


@pytest.fixture
def one_redactor_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """To make one takes most of the time, and those of equal secrets are equal."""
    made = cache(Redactor)
    for module in (plan, launch, secret_filter):
        monkeypatch.setattr(module, "Redactor", lambda secrets: made(frozenset(secrets)))


@pytest.mark.slow
@pytest.mark.usefixtures("one_redactor_for_all")
def test_no_secret_is_told(tmp_path):
    assert next(leaks(CASES, tmp_path), None) is None


def test_the_cases_are_of_every_kind():
    rng = random.Random(SEED)
    cases = [make_case(rng) for _ in range(2000)]
    assert len({case.value for case in cases}) == len(cases)
    assert all(case.words for case in cases)
    rules = set()
    valid = 0
    for case in cases:
        try:
            parse_proxy("X", case.value)
            valid += 1
        except SettingError as error:
            rules.add(str(error))
    assert 0.3 < valid / len(cases) < 0.6
    assert len(rules) >= 9


Break = Callable[[pytest.MonkeyPatch], None]


def break_hiding(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(redaction.Redactor, "hide", lambda self, data: data)


def break_messages(patch: pytest.MonkeyPatch) -> None:
    rule = proxy_url._broken_rule
    patch.setattr(proxy_url, "_broken_rule", lambda url: rule(url) and f"{rule(url)}: {url}")


def break_secrets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(proxy_url, "unquote", lambda text: text)


def break_repr(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(proxy_url.Proxy, "__repr__", lambda self: self.url)


def break_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(proxy_check, "_reason", repr)


def break_reports(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reports, "_is_shown_safely", lambda report: True)
    patch.setattr(reports, "_totals", lambda report: Totals())


def break_facts(patch: pytest.MonkeyPatch) -> None:
    def facts(workers: Sequence[Worker], *more: object) -> object:
        return [dict(each._spec.environ) for each in workers]

    patch.setitem(globals(), "summary_facts", facts)


@pytest.mark.usefixtures("one_redactor_for_all")
@pytest.mark.parametrize(
    ("break_it", "path"),
    [
        (break_hiding, "planning"),
        (break_messages, "parsing"),
        (break_secrets, "planning"),
        (break_repr, "parsing"),
        (break_check, "checking"),
        (break_reports, "planning"),
        (break_facts, "planning"),
    ],
)
def test_a_leak_would_be_seen(tmp_path, monkeypatch, break_it, path):
    break_it(monkeypatch)
    found = list(leaks(300, tmp_path))
    assert path in {path for _, path, _ in found}
