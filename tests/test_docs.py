"""The pages in docs/ and the README say what the code does: names, defaults, commands, examples."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from shop import catalogue

import scrapy_hexshard
from scrapy_hexshard import (
    Config,
    RetryPolicy,
    Settlement,
    ShardSpec,
    SQLiteWorkStore,
    cli,
    open_store,
)
from scrapy_hexshard.components import request_codec
from scrapy_hexshard.components.addon import COMPONENTS
from scrapy_hexshard.components.dupefilter import UnitDupeFilter
from scrapy_hexshard.components.feed_params import with_shard
from scrapy_hexshard.launcher import proxies, proxy_check, socks5, summary, supervisor
from scrapy_hexshard.launcher.signals import STOP_SIGNALS
from scrapy_hexshard.pipes import LIFELINE_VARIABLE, STATUS_VARIABLE
from scrapy_hexshard.proxy_url import PROXY_VARIABLE
from scrapy_hexshard.sharding import SHARD_VARIABLE, SHARDS_VARIABLE
from scrapy_hexshard.store.contract import MAX_PAYLOAD_BYTES, State

PACKAGE = Path(scrapy_hexshard.__file__).parent
ROOT = Path(__file__).parents[1]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
}
REFERENCE = PAGES["docs/reference.md"]
TREES = {
    str(path.relative_to(PACKAGE)): ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")
}


class Block(NamedTuple):
    """A fenced block, with the comment above it that says what to do with it."""

    page: str
    language: str
    mark: str
    text: str


def blocks() -> Iterator[Block]:
    fence = re.compile(r"(?:^<!-- (.+?) -->\n)?^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    for page, text in PAGES.items():
        for mark, language, body in fence.findall(text):
            yield Block(page, language, mark, body)


BLOCKS = list(blocks())


def section(title: str, text: str = REFERENCE) -> str:
    """What stands below a heading, up to the next one of its level."""
    level, body = re.split(rf"^(#+) {re.escape(title)}\n", text, flags=re.MULTILINE)[1:]
    return re.split(rf"^#{{1,{len(level)}}} ", body, flags=re.MULTILINE)[0]


def cells(title: str) -> list[list[str]]:
    """The rows of the first table of a section, without its head."""
    lines = re.search(r"(?:^\|.*\n)+", section(title), re.MULTILINE)
    assert lines, f"no table in {title}"
    rows = [re.split(r"(?<!\\)\|", line.strip()[1:-1]) for line in lines[0].splitlines()]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def quoted(text: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", text)


def documented(title: str) -> list[str]:
    """The names in the first column of a section's table."""
    names = [name for row in cells(title) for name in quoted(row[0])]
    assert len(names) == len(set(names)), f"named twice in {title}"
    return names


# The code, read.


def nodes(kind: type, *files: str) -> Iterator[Any]:
    for file, tree in TREES.items():
        if not files or file.startswith(files):
            yield from (node for node in ast.walk(tree) if isinstance(node, kind))


def texts(node: ast.AST) -> Iterator[str]:
    """The strings in an expression; what an f-string puts in is <>."""
    if isinstance(node, ast.JoinedStr):
        parts = [p.value if isinstance(p, ast.Constant) else "<>" for p in node.values]
        yield "".join(map(str, parts))
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node.value
    else:
        tests = [node.test] if isinstance(node, ast.IfExp) else []
        for child in ast.iter_child_nodes(node):
            if child not in tests:
                yield from texts(child)


def arguments_of(names: Iterable[str], *files: str) -> set[str]:
    """The strings among the arguments of all calls of functions with these names."""
    found: set[str] = set()
    for call in nodes(ast.Call, *files):
        if getattr(call.func, "attr", getattr(call.func, "id", None)) in names:
            found.update(text for argument in call.args for text in texts(argument))
    return found


def blanked(names: Iterable[str]) -> set[str]:
    return {re.sub("<[^>]*>", "<>", name) for name in names}


# Settings.

SETTINGS = {name: row for row in cells("Settings") for name in quoted(row[0])}


def code_names() -> set[str]:
    return {
        node.value
        for node in nodes(ast.Constant)
        if isinstance(node.value, str) and re.fullmatch(r"HEXSHARD_[A-Z_]+", node.value)
    }


def test_every_setting_is_documented_and_no_other() -> None:
    settings = code_names() - {LIFELINE_VARIABLE, STATUS_VARIABLE}
    assert len(settings) > 10
    assert SETTINGS.keys() == settings


@pytest.mark.parametrize("name", SETTINGS)
def test_the_default_of_a_setting_is_the_documented_one(name: str) -> None:
    for concurrency in (16, 5):
        given = {"CONCURRENT_REQUESTS": concurrency}
        formula = quoted(SETTINGS[name][1])[0].replace("CONCURRENT_REQUESTS", str(concurrency))
        default = eval(formula, {"__builtins__": {}})
        plain = Config.read(given, environ={})
        assert Config.read({**given, name: default}, environ={}) == plain
        other = Config.read({**given, **something_else(name, default)}, environ={})
        assert other != plain, f"{name} changes nothing, so its default is not checked"


def something_else(name: str, default: Any) -> dict[str, Any]:
    if name in {"HEXSHARD_SHARD", "HEXSHARD_SHARDS"}:
        return {"HEXSHARD_SHARD": 1, "HEXSHARD_SHARDS": 2}
    if isinstance(default, bool):
        return {name: not default}
    if isinstance(default, int):
        return {name: default + 1}
    choices = {
        "HEXSHARD_COMPLETE_AFTER": "feed",
        "HEXSHARD_EMPTY": "fail",
        "HEXSHARD_FOLLOW": "drop",
        "HEXSHARD_STORE": "s.sqlite3",
    }
    return {name: [500] if isinstance(default, list) else choices[name]}


def test_no_page_names_a_setting_that_does_not_exist() -> None:
    known = code_names()
    for page, text in PAGES.items():
        assert set(re.findall(r"HEXSHARD_[A-Z_]*[A-Z]", text)) <= known, page


# Stats, outcomes, reasons, states.


def counted() -> set[str]:
    """The stat keys that the code counts or sets."""
    names = {
        f"hexshard/{name}"
        for name in arguments_of({"count", "_count"}, "components")
        if not name.startswith("late/")
    }
    names |= {f"hexshard/late/{what}" for what in arguments_of({"late"}, "components")}
    literal = arguments_of({"inc_value", "set_value", "max_value", "min_value"}, "components")
    names |= {name for name in literal if re.fullmatch("hexshard/[a-z_/]+", name)}
    return names


def test_every_stat_is_documented_and_no_other() -> None:
    assert len(counted()) > 20
    assert blanked(documented("Stats")) == counted()


def test_every_outcome_is_documented_and_no_other() -> None:
    constants = {
        node.value.value
        for file in ("units.py", "store/contract.py")
        for node in TREES[file].body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        if isinstance(node.value.value, str)
    }
    failures = arguments_of({"fail", "_fail"}, "components")
    assert "spider: <>" in failures
    assert blanked(documented("Outcomes")) == failures | constants


def test_every_closing_reason_of_ours_is_documented_and_no_other() -> None:
    reasons = arguments_of({"stop"}, "components")
    for node in nodes(ast.Assign, "components"):
        if any(getattr(target, "attr", None) == "reason" for target in node.targets):
            reasons |= set(texts(node.value))
    assert "stuck" in reasons
    assert set(documented("Closing reasons")) == reasons


def test_the_states_are_those_of_the_store() -> None:
    assert set(documented("States")) == set(State)


# Commands.


def parsers() -> dict[str, argparse.ArgumentParser]:
    whole = cli._parser([])
    (commands,) = [a for a in whole._actions if isinstance(a, argparse._SubParsersAction)]
    return dict(commands.choices)


PARSERS = parsers()
EVERY_COMMAND = {"--help", "--version"}


def test_every_command_has_a_section_and_no_other() -> None:
    titles = re.findall(r"^### hexdigest-shard (\S+)$", section("Commands"), re.MULTILINE)
    assert titles == list(PARSERS) == list(cli.COMMANDS)


@pytest.mark.parametrize("command", PARSERS)
def test_every_option_is_in_the_section_of_its_command_and_no_other(command: str) -> None:
    text = section(f"hexdigest-shard {command}")
    options = {
        option
        for action in PARSERS[command]._actions
        for option in action.option_strings
        if option.startswith("--")
    }
    assert set(re.findall(r"--[a-z][a-z-]+", text)) - EVERY_COMMAND == options - EVERY_COMMAND
    for action in PARSERS[command]._actions:
        if not action.option_strings:
            assert str(action.metavar) in text.splitlines()[1]


def test_every_exit_code_is_documented_and_no_other() -> None:
    codes = {0, supervisor.EXIT_FAILED, cli.EXIT_USAGE, cli._EXIT_BROKEN_PIPE}
    codes |= set(supervisor._EXIT_OF_ERRNO.values()) | {128 + number for number in STOP_SIGNALS}
    assert {int(row[0]) for row in cells("Exit codes")} == codes


def test_the_environment_variables_are_those_of_the_code() -> None:
    own = {f"{name}_<shard>" for name in (PROXY_VARIABLE, proxies.FILE_VARIABLE)}
    proxy = {PROXY_VARIABLE, *own, proxies.TEMPLATE_VARIABLE, proxies.TEMPLATE_FILE_VARIABLE}
    ours = {SHARD_VARIABLE, SHARDS_VARIABLE, LIFELINE_VARIABLE, STATUS_VARIABLE}
    assert set(documented("Environment variables")) == ours | proxy


def test_what_the_check_of_the_proxies_says_is_documented_and_no_more() -> None:
    told = {reason for _, reason in proxy_check._REASONS} | set(socks5._REPLIES.values())
    told |= arguments_of({"SocksError"}, "launcher") | {"unreachable", "407"}
    names = {name for name in documented("The check of the proxies") if name != "proxy: 503"}
    assert names - {"proxy answers (0.03 s)"} == {f"proxy: {reason}" for reason in told}


def command_lines() -> Iterator[tuple[str, str]]:
    """The lines that give a command: in a shell, in a crontab or in a unit or pod of a service."""
    for block in BLOCKS:
        for line in block.text.splitlines():
            if block.language == "sh" or line.startswith("$ "):
                yield block.page, line.removeprefix("$ ")
            elif block.language in {"", "ini"} and "hexdigest-shard run" in line:
                yield block.page, line.partition("=")[2] if block.language else line
            elif block.language == "yaml" and "hexdigest-shard," in line:
                yield block.page, re.sub(r"[\[\],]", " ", line)


COMMAND_LINES = list(command_lines())


@pytest.mark.parametrize(("page", "line"), COMMAND_LINES)
def test_a_command_that_is_shown_can_be_given(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)
    programs = [Path(word).name for word in words]
    if "hexdigest-shard" in programs:
        given, worker = cli.split_command(words[programs.index("hexdigest-shard") + 1 :])
        for end in ("|", ">", "&&", ";"):
            given = given[: given.index(end)] if end in given else given
        cli._parser(given).parse_args(given)
        assert (worker is None) == (given[0] != "run"), page
    if words[:3] == ["python", "-m", "shop"]:
        source = (ROOT / "example_project/shop/__main__.py").read_text()
        assert all(f'"{word}"' in source for word in words if word.startswith("--"))


def test_commands_are_shown() -> None:
    assert sum("hexdigest-shard" in line for _, line in COMMAND_LINES) > 18


# Names and limits.


def test_every_public_name_is_documented_and_no_other() -> None:
    names = {name for name in quoted(section("Python names")) if name.isidentifier()}
    assert names - {"scrapy_hexshard", "ValueError"} == set(scrapy_hexshard.__all__)


def test_what_a_stored_request_may_hold_is_documented() -> None:
    text = section("Stored requests")
    names = set(quoted(text))
    assert {kind.__name__ for kind in request_codec._ENCODERS} <= names
    assert {kind.__name__ for kind in request_codec._PLAIN_TYPES} <= names
    assert {header.decode() for header in request_codec._SECRET_HEADERS} <= names
    assert set(request_codec._SECRET_META) <= names
    assert f"{MAX_PAYLOAD_BYTES:,} bytes" in text


# Python blocks.

PYTHON = [block for block in BLOCKS if block.language == "python"]
SETTINGS_FILES = [block for block in PYTHON if block.text.startswith("# settings.py\n")]
RUN = [block for block in PYTHON if block.mark.startswith("runs")]


@pytest.mark.parametrize("block", PYTHON)
def test_python_that_is_shown_compiles(block: Block) -> None:
    compile(block.text, block.page, "exec")


@pytest.mark.parametrize("block", SETTINGS_FILES)
def test_settings_that_are_shown_are_accepted(block: Block) -> None:
    settings: dict[str, Any] = {}
    exec(block.text, settings)
    Config.read(settings, environ={})


def test_the_components_placed_by_hand_are_those_of_the_addon() -> None:
    (block,) = [block for block in SETTINGS_FILES if "EXTENSIONS" in block.text]
    settings: dict[str, Any] = {}
    exec(block.text, settings)
    by_hand = {
        (setting, path, order)
        for setting in {setting for setting, _, _ in COMPONENTS}
        for path, order in settings[setting].items()
    }
    assert by_hand == {
        (setting, f"{component.__module__}.{component.__qualname__}", order)
        for setting, component, order in COMPONENTS
    }
    filter_path = f"{UnitDupeFilter.__module__}.{UnitDupeFilter.__qualname__}"
    assert settings["DUPEFILTER_CLASS"] == filter_path
    assert settings["FEED_URI_PARAMS"] == f"{with_shard.__module__}.{with_shard.__qualname__}"


@pytest.mark.timeout(60)  # a loop over a store may not end
@pytest.mark.parametrize("block", RUN)
def test_python_that_is_marked_runs(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    urls = [f"https://shop.example/p/{number}" for number in range(40)]
    own = [url for url in urls if ShardSpec(0, 4).owns(url)]
    fetched: list[str] = []

    def fetch_product(key: str) -> None:
        fetched.append(str(key))
        if "one product fails" in block.mark and key == own[0]:
            raise ConnectionError("gone")

    names: dict[str, Any] = {"product_urls": urls, "fetch_product": fetch_product}
    exec(block.text, names)
    for left_open in [name for name in names.values() if isinstance(name, SQLiteWorkStore)]:
        left_open.close()
    if "fetch_product" in block.text:
        assert fetched == own
        failed = 1 if "one product fails" in block.mark else 0
        with open_store("crawl.sqlite3", ShardSpec(0, 4)) as store:
            assert store.counts()[State.FAILED] == failed
            assert store.counts()[State.DONE] == len(own) - failed


def test_the_store_loop_is_there_to_run() -> None:
    assert sum("product_urls" in block.text for block in RUN) == 2
    assert any("one product fails" in block.mark for block in RUN)


def test_the_default_retry_policy_is_that_of_the_settings() -> None:
    assert Config.read({}, environ={}).retry == RetryPolicy()


# What the examples print.


def shown(command: str, page: str, mark: str = "") -> str:
    """What *page* shows below *command*, in the block with that *mark*."""
    (output,) = [
        block.text.partition("\n")[2]
        for block in BLOCKS
        if (block.page, block.mark) == (page, mark) and block.text.startswith(f"$ {command}\n")
    ]
    return output


def printed(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints, its standard output first."""
    assert cli.main(shlex.split(command)[1:]) == 0
    captured = capsys.readouterr()
    return captured.out + captured.err


def test_the_dry_run_prints_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    command = "hexdigest-shard run --shards 4 --dry-run -- scrapy crawl products"
    assert printed(command, capsys) == shown(command, "docs/tutorial.md")


def test_loading_a_list_prints_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = ["# products", "https://shop.example/p/1", "https://shop.example/p/2"]
    lines += ["HTTPS://Shop.example/p/1#top", "shop.example/p/3", "http://shop.example:99999/"]
    Path("urls.txt").write_text("\n".join(lines))
    command = "hexdigest-shard load crawl.sqlite3 urls.txt --shards 4"
    assert printed(command, capsys) == shown(command, "docs/howto.md")


def test_the_end_of_the_tutorial_is_that_of_its_shop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    address = re.search(r"^http://\S+$", PAGES["docs/tutorial.md"], re.MULTILINE)
    assert address
    outcomes = {f"{address[0]}/p/{each.id}": each.outcome for each in catalogue(1000)}
    for shard in range(4):
        with SQLiteWorkStore("crawl.sqlite3", ShardSpec(shard, 4)) as store:
            store.enqueue(outcomes)
            store.settle(
                Settlement.complete(claim, items=["{}"])
                if outcomes[claim] == "done"
                else Settlement.fail(claim, outcomes[claim], permanent=True)
                for claim in store.claim(limit=1000)
            )
    status = "hexdigest-shard status crawl.sqlite3"
    assert printed(status, capsys) == shown(status, "docs/tutorial.md", "final status")
    export = "hexdigest-shard export crawl.sqlite3 items.jsonl"
    assert printed(export, capsys) == shown(export, "docs/tutorial.md")


def test_the_table_of_a_run_has_the_columns_shown() -> None:
    heads = re.findall(r"^shard  lives.*$", PAGES["docs/tutorial.md"], re.MULTILINE)
    assert len(heads) == 2
    assert {tuple(head.split()) for head in heads} == {summary._HEADER}


def test_the_rate_is_logged_as_shown() -> None:
    (sentence,) = [
        text for text in texts(TREES["components/worker.py"]) if text.startswith("Limit per site")
    ]
    assert sentence % (2, 2, 8, 0.5) in PAGES["docs/howto.md"].splitlines()


# Links and words.


def slugs(text: str) -> set[str]:
    """The anchors of a page's headings, as they are made on the web."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


LINKS = [
    (page, target)
    for page, text in PAGES.items()
    for target in re.findall(r"\[[^\]]+\]\(([^)\s]+)\)", text)
    if "://" not in target
]


@pytest.mark.parametrize(("page", "target"), LINKS)
def test_a_link_leads_somewhere(page: str, target: str) -> None:
    file, _, anchor = target.partition("#")
    path = (ROOT / page).parent / file if file else ROOT / page
    assert path.is_file(), f"{page} links to {target}"
    if anchor:
        assert anchor in slugs(path.read_text()), f"{page} links to {target}"


def test_the_pages_are_linked() -> None:
    assert len(LINKS) > 20
    linked = {target.partition("#")[0] for page, target in LINKS if page == "README.md"}
    assert {page for page in PAGES if page != "README.md"} <= linked


@pytest.mark.parametrize("page", PAGES)
def test_no_page_is_unfinished(page: str) -> None:
    words = r"(?i)\b(TODO|TBD|FIXME|XXX|lorem|placeholder|coming soon|to be (written|done))\b"
    assert not re.search(words, PAGES[page])
