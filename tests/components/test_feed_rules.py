"""Feeds that would lose items are refused, or warned of, before the crawl begins."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies
from scrapy import Spider
from scrapy.extensions.feedexport import FileFeedStorage
from support.crawling import crawl, crawl_test, run
from support.feeding import feed, lines, remote, remote_feed
from support.processes import SETTINGS, Project
from support.spiders import Plain

from scrapy_hexshard import ShardSpec, SQLiteWorkStore
from scrapy_hexshard.components.feed_params import with_shard
from scrapy_hexshard.components.feed_rules import FeedSetting
from scrapy_hexshard.errors import SettingError, StoreMismatchError

SHARDS = 3
BY_HAND = {
    "ADDONS": {},
    "EXTENSIONS": {"scrapy_hexshard.components.worker.WorkerExtension": 0},
    "SPIDER_MIDDLEWARES": {"scrapy_hexshard.components.feeder.FeederMiddleware": 1050},
}
WITH_SHARD = f"{with_shard.__module__}.{with_shard.__qualname__}"


def keys(origin: str, count: int = 12) -> list[str]:
    return [f"{origin}/ok?{number}" for number in range(count)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the crawl runs; no digit in a feed's URI is this folder's."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def worker(store_path: Path, index: Any, settings: dict[str, Any], **more: Any) -> Any:
    shard = {} if index is None else {"shard": str(index), "shards": str(SHARDS)}
    return await run(Plain, {"HEXSHARD_STORE": str(store_path), **settings}, **shard, **more)


# The feed of one worker.

SHARED = {
    "one path": ("items.jsonl", "items-%(shard)s.jsonl"),
    "time": ("items-%(time)s.jsonl", "items-%(time)s-%(shard)s.jsonl"),
    "batches": (
        "out/%(batch_id)d-%(batch_time)s.csv",
        "out/%(batch_id)d-%(batch_time)s-%(shard)s.csv",
    ),
    "another number": ("items-7.jsonl", "items-7-%(shard)s.jsonl"),
    "part of a number": ("items-21.jsonl", "items-21-%(shard)s.jsonl"),
    "a version": ("v1.0/items.jsonl", "v1.0/items-%(shard)s.jsonl"),
    "two shards": ("items-1-0.jsonl", "items-1-0-%(shard)s.jsonl"),
    "another in a folder": ("0/items-1.jsonl", "0/items-1-%(shard)s.jsonl"),
    "leading zeros": ("items-001.jsonl", "items-001-%(shard)s.jsonl"),
    "a width": ("%(batch_time)1s.csv", "%(batch_time)1s-%(shard)s.csv"),
    "shards alone": ("items-of-%(shards)s.jsonl", "items-of-%(shards)s-%(shard)s.jsonl"),
    "host": (
        "ftp://me:secret@10.0.0.1:2121/items.jsonl",
        "ftp://10.0.0.1:2121/items-%(shard)s.jsonl",
    ),
    "no suffix": ("some.dir/items", "some.dir/items-%(shard)s"),
}


@pytest.mark.parametrize("case", SHARED)
@crawl_test
async def test_one_file_for_all_workers_is_refused_with_the_line_to_use(store_path, folder, case):
    uri, line = SHARED[case]
    with pytest.raises(SettingError) as refused:
        await worker(store_path, 1, feed(uri))
    assert f"is the same for all {SHARDS} workers" in str(refused.value)
    assert str(refused.value).endswith(f"{line}.")
    assert "secret" not in str(refused.value)
    assert list(folder.iterdir()) == []


@crawl_test
async def test_the_braces_of_the_launcher_typed_by_hand_are_told_from_what_scrapy_fills_in(
    store_path, folder
):
    for uri in ("items-{shard}.jsonl", "{shards}/items.jsonl"):
        with pytest.raises(SettingError) as refused:
            await worker(store_path, 1, feed(uri))
        line = {"i": "items-%(shard)s.jsonl", "{": "%(shards)s/items-%(shard)s.jsonl"}[uri[0]]
        assert str(refused.value).endswith(
            f"Give each its own: {line}. Only hexdigest-shard run fills in braces."
        )


OWN = {
    "shard": "items-%(shard)s.jsonl",
    "padded": "items-%(shard)03d.jsonl",
    "filled by the launcher": "items-1.jsonl",
    "with the number of shards": "items-1-of-3.jsonl",
    "with a date": "2026-11-30/items-1.jsonl",
    "with a version": "v1.0/items-1.jsonl",
    "a folder": "out/1/items.jsonl",
    "a folder and the name": "1/items-1.jsonl",
    "a spider argument": "items-%(part)s.jsonl",
    "standard output": "stdout:",
}


@pytest.mark.parametrize("case", OWN)
@crawl_test
async def test_a_file_of_its_own_is_accepted(store_path, folder, case):
    await worker(store_path, 1, feed(OWN[case], store_empty=False), part="p1")


COUNTS = strategies.integers(2, 300)
NAMES = strategies.text("0123456789-_./v\u0661\u00b2", max_size=20) | strategies.builds(
    "{}{}{}".format, strategies.text("v-/0"), COUNTS, strategies.text("-/.0")
)


@given(NAMES, COUNTS)
def test_no_path_is_that_of_two_shards(path: str, count: int) -> None:
    feed = FeedSetting(path, {}, FileFeedStorage)
    shards = [n for n in range(count) if feed.is_own(Spider("any"), ShardSpec(n, count))]
    assert len(shards) <= 1


@given(COUNTS, COUNTS)
def test_a_number_by_itself_names_its_shard(number: int, count: int) -> None:
    shard = ShardSpec(number % count, count)
    for path in (f"items-{shard.index}.jsonl", f"{shard.index}/v1.0/items.jsonl"):
        assert FeedSetting(path, {}, FileFeedStorage).is_own(Spider("any"), shard)


@crawl_test
async def test_a_single_worker_may_have_any_file(store_path, origin, folder):
    await crawl(store_path, Plain, keys(origin, 1), feed("items.jsonl"))
    assert len(lines(folder / "items.jsonl")) == 1


# What %(shard)s is.

PLACES: dict[str, tuple[dict[str, Any], dict[str, str], dict[str, str], str]] = {
    "arguments": ({}, {"shard": "2", "shards": "3"}, {}, "2-3"),
    "one argument": ({}, {"shard": "2/3"}, {}, "2-3"),
    "settings": ({"HEXSHARD_SHARD": 2, "HEXSHARD_SHARDS": 3}, {}, {}, "2-3"),
    "environment": ({}, {}, {"CRAWL_SHARD": "2", "CRAWL_SHARDS": "3"}, "2-3"),
    "nowhere": ({}, {}, {}, "0-1"),
}


@pytest.mark.parametrize("place", PLACES)
@crawl_test
async def test_the_shard_is_a_number_wherever_it_is_from(
    store_path, origin, folder, monkeypatch, place
):
    settings, arguments, environment, name = PLACES[place]
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    uri = "%(shard)d-%(shards)s.jsonl"
    await worker(store_path, None, {**settings, **feed(uri)}, **arguments)
    assert (folder / f"{name}.jsonl").exists()


@crawl_test
async def test_it_is_known_when_all_else_is_turned_off(origin, folder):
    await run(Plain, {"HEXSHARD_ENABLED": False, **feed("items-%(shard)s.jsonl")})
    assert (folder / "items-0.jsonl").exists()


def own_params(params: dict[str, Any], spider: Any) -> dict[str, Any]:
    return {**params, "kind": f"of{params['shard']}"}


def only_own(params: dict[str, Any], spider: Any) -> dict[str, Any]:
    return {"kind": "alone"}


def in_place(params: dict[str, Any], spider: Any) -> None:
    params["kind"] = "placed"


OWN_FUNCTIONS = {
    "for all": ({"FEED_URI_PARAMS": own_params}, {}, "1-of1"),
    "by its path": ({"FEED_URI_PARAMS": f"{__name__}.own_params"}, {}, "1-of1"),
    "for one feed": ({}, {"uri_params": own_params}, "1-of1"),
    "with nothing else": ({"FEED_URI_PARAMS": only_own}, {}, "1-alone"),
    "changing what it gets": ({"FEED_URI_PARAMS": in_place}, {}, "1-placed"),
}


@pytest.mark.parametrize("case", OWN_FUNCTIONS)
@crawl_test
async def test_a_function_of_the_project_is_asked_too(store_path, folder, case):
    settings, options, name = OWN_FUNCTIONS[case]
    uri = feed("%(shard)s-%(kind)s.jsonl", **options)
    await worker(store_path, None, {**settings, **uri}, shard="1/3")
    assert (folder / f"{name}.jsonl").exists()


@crawl_test
async def test_by_hand_one_line_supplies_the_shard(store_path, folder):
    uri = feed("items-%(shard)s.jsonl")
    with pytest.raises(SettingError, match=f"set FEED_URI_PARAMS = '{WITH_SHARD}'"):
        await worker(store_path, None, {**BY_HAND, **uri}, shard="1/3")
    settings = {**BY_HAND, **uri, "FEED_URI_PARAMS": WITH_SHARD}
    await worker(store_path, None, settings, shard="1/3")
    assert (folder / "items-1.jsonl").exists()


# Overwriting.

OVERWRITING: dict[str, Any] = {
    "file": lambda: feed("items.jsonl", overwrite=True),
    "remote": lambda: remote_feed(remote()),
    "remote batches": lambda: remote_feed(remote(), 1),
}


@pytest.mark.parametrize("base", [{}, BY_HAND], ids=["add-on", "by hand"])
@pytest.mark.parametrize("case", OVERWRITING)
@crawl_test
async def test_a_feed_is_not_overwritten_once_a_key_is_done(store_path, origin, folder, case, base):
    settings = {**base, **OVERWRITING[case]()}
    # At first there is nothing to lose.
    crawled = await crawl(store_path, Plain, keys(origin, 1), settings)
    assert crawled.counts == {"done": 1}
    before = (folder / "items.jsonl").read_bytes() if case == "file" else b""
    with pytest.raises(SettingError) as refused:
        await crawl(store_path, Plain, keys(origin, 2), settings)
    assert "would overwrite their items. Append to it with -o" in str(refused.value)
    assert "%(time)s" in str(refused.value)
    if case == "file":
        assert (folder / "items.jsonl").read_bytes() == before != b""


APPENDING: dict[str, Any] = {
    "file": lambda: feed("items.jsonl"),
    "batches": lambda: feed("items-%(batch_id)d.jsonl", batch_item_count=1),
    "new file": lambda: feed("items-%(time)s.jsonl", overwrite=True),
    "new batches": lambda: remote_feed(remote(), 1, "remote://host/%(batch_time)s.jsonl"),
    "storage that appends": lambda: {
        "FEEDS": {"remote://host/all": {"format": "jsonlines", "overwrite": False}},
        "FEED_STORAGES": {"remote": remote()},
    },
    "standard output": lambda: feed("stdout:"),
}


@pytest.mark.parametrize("case", APPENDING)
@crawl_test
async def test_a_feed_that_keeps_what_it_has_goes_on(store_path, origin, folder, case):
    settings = APPENDING[case]()
    await crawl(store_path, Plain, keys(origin, 1), settings)
    crawled = await crawl(store_path, Plain, keys(origin, 2), settings)
    assert crawled.counts == {"done": 2}
    # Batches are counted from 1 in each run.
    name = {"file": "items.jsonl", "batches": "items-1.jsonl"}.get(case)
    assert name is None or len(lines(folder / name)) == 2


@crawl_test
async def test_keys_of_other_shards_do_not_matter(store_path, origin, folder):
    with SQLiteWorkStore(str(store_path), ShardSpec(1, SHARDS)) as store:
        store.enqueue(keys(origin))
        assert store.complete(*store.claim(1))
    settings = feed("items-%(shard)s.jsonl", overwrite=True)
    await worker(store_path, 0, settings)
    assert len(lines(folder / "items-0.jsonl")) > 0
    with pytest.raises(SettingError, match="Keys of shard 1/3 are done"):
        await worker(store_path, 1, settings)
    assert not (folder / "items-1.jsonl").exists()


@crawl_test
async def test_a_store_that_is_refused_does_not_cost_the_file_that_would_be_overwritten(
    store_path, origin, folder
):
    settings = feed("items.jsonl", overwrite=True)
    with SQLiteWorkStore(str(store_path), 1) as store:
        store.bind_spider("another")
    (folder / "items.jsonl").write_text("{}\n")
    with pytest.raises(StoreMismatchError):
        await worker(store_path, None, settings)
    assert (folder / "items.jsonl").read_text() == "{}\n"


# Warnings.


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        each.message
        for each in caplog.records
        if "one JSON" in each.message or "one XML" in each.message
    ]


@pytest.mark.parametrize(
    ("uri", "form", "warned"),
    [
        ("items.json", "json", True),
        ("items.xml", "xml", True),
        ("items.jsonl", "jsonlines", False),
        ("items.csv", "csv", False),
        ("items-%(time)s.json", "json", True),
    ],
)
@crawl_test
async def test_a_document_that_a_kill_leaves_without_its_end_is_warned_of(
    store_path, origin, folder, caplog, uri, form, warned
):
    caplog.set_level(logging.WARNING)
    await crawl(store_path, Plain, keys(origin, 1), feed(uri, format=form))
    assert len(said(caplog)) == (1 if warned else 0)


@crawl_test
async def test_a_document_of_each_run_whose_keys_wait_for_it_is_fine(
    store_path, origin, folder, caplog
):
    settings = {**feed("items-%(time)s.json", format="json"), "HEXSHARD_COMPLETE_AFTER": "feed"}
    await crawl(store_path, Plain, keys(origin, 1), settings)
    assert said(caplog) == []


@crawl_test
async def test_without_a_store_no_rule_applies(origin, folder, caplog):
    await run(Plain, feed("items.json", format="json", overwrite=True), shard="1", shards="3")
    assert said(caplog) == []
    assert (folder / "items.json").exists()


# From the command line.

PAGES = """
class Pages(scrapy.Spider):
    name = "pages"

    def parse(self, response):
        yield {"url": response.url}
"""


def test_the_option_that_overwrites_is_refused_in_one_sentence_and_spoils_nothing(
    project: Project,
) -> None:
    project.write(PAGES, SETTINGS + "HEXSHARD_ITEMS = False\n")
    project.load(f"{project.origin}/ok?1")
    project.run("crawl", "pages", "-O", "items.jsonl")
    assert project.counts == {"done": 1}
    before = project.read("items.jsonl")
    project.load(f"{project.origin}/ok?2")
    ended = project.run("crawl", "pages", "-O", "items.jsonl")
    assert ended.code == 1
    assert "Append to it with -o" in ended.err
    assert "Traceback" not in ended.err
    assert project.read("items.jsonl") == before
    assert project.run("crawl", "pages", "-o", "items.jsonl").code == 0
    assert len(project.read("items.jsonl").splitlines()) == 2


@pytest.mark.parametrize("option", ["-o", "-O"])
def test_other_commands_are_not_concerned(project: Project, option: str) -> None:
    feeds = 'FEEDS = {"items.json": {"format": "json", "overwrite": True}}\n'
    project.write(PAGES, SETTINGS + feeds + "HEXSHARD_SHARD = 1\nHEXSHARD_SHARDS = 3\n")
    ended = project.run("fetch", "--nolog", f"{project.origin}/ok")
    assert ended.code == 0
    assert "ok" in ended.out
    ended = project.run("parse", "--spider=pages", f"{project.origin}/ok", option, "parsed.json")
    assert ended.code == 0, ended.err
    assert "[scrapy_hexshard" not in ended.err.replace("[scrapy_hexshard.components.worker]", "")
