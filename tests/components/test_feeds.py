"""Local feeds: a key is complete only once its lines are in the file, and on disk."""

from __future__ import annotations

import gzip
import logging
import os
import re
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from scrapy import signals
from scrapy.extensions.feedexport import FeedExporter, FileFeedStorage
from support.crawling import crawl, crawl_test
from support.feeding import feed, lines
from support.spiders import Plain, until

from scrapy_hexshard import SQLiteWorkStore
from scrapy_hexshard.components import feed_files
from scrapy_hexshard.components.feed_files import FeedFile, FeedFiles
from scrapy_hexshard.store.contract import Kind

WITHOUT = {"HEXSHARD_ITEMS": False}


def keys(origin: str, count: int = 12) -> list[str]:
    return [f"{origin}/ok?{number}" for number in range(count)]


class Three(Plain):
    """Three items per page, in more than one callback."""

    def parse(self, response: Any) -> Any:
        for part in range(2):
            yield {"url": response.url, "part": part}
        of = {"of": response.url}
        yield self.follow(response, f"/ok?leaf={id(response)}", callback=self.leaf, cb_kwargs=of)

    def leaf(self, response: Any, of: str) -> Any:
        yield {"url": of, "part": 2}


class Watch:
    """What is on disk, by the calls that put it there, whenever the store commits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.folder = folder
        self.checked: list[str] = []  # keys, in the order of their completion
        self.missing: list[str] = []  # those whose lines were not on disk by then
        self.pressed: dict[str, bytes] = {}  # what each file held when it was last fsynced
        self.folders: list[str] = []
        self.durable = True
        self._completing: list[str] = []
        settle, group, fsync = SQLiteWorkStore.settle, SQLiteWorkStore.group, os.fsync
        watch = self

        def watched_settle(self: Any, settlements: Any) -> Any:
            given = list(settlements)
            watch._completing += [str(each.claim) for each in given if each.kind is Kind.COMPLETE]
            return settle(self, given)

        @contextmanager
        def watched_group(self: Any) -> Any:
            with group(self):
                yield
                watch._look()

        def watched_fsync(descriptor: int) -> None:
            fsync(descriptor)
            name = os.path.realpath(f"/proc/self/fd/{descriptor}")
            if Path(name).is_dir():
                watch.folders.append(name)
            else:
                watch.pressed[name] = Path(name).read_bytes()

        monkeypatch.setattr(SQLiteWorkStore, "settle", watched_settle)
        monkeypatch.setattr(SQLiteWorkStore, "group", watched_group)
        monkeypatch.setattr(feed_files.os, "fsync", watched_fsync)

    def _look(self) -> None:
        """Just before COMMIT."""
        completing, self._completing = self._completing, []
        files = {
            str(path): path.read_bytes()
            for path in self.folder.rglob("*")
            if path.is_file() and "sqlite3" not in path.name
        }
        there = b"\n".join((self.pressed if self.durable else files).values()).decode()
        for key in completing:
            self.checked.append(key)
            if len(re.findall(rf"{re.escape(key)}\b", there)) < 3:
                self.missing.append(key)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Watch:
    return Watch(monkeypatch, tmp_path)


BATCHES = {"FEED_EXPORT_BATCH_ITEM_COUNT": 2}


@pytest.mark.parametrize("settings", [{}, BATCHES], ids=["one file", "batches"])
@pytest.mark.parametrize("form", ["jsonlines", "csv", "xml"])
@crawl_test
async def test_the_lines_of_a_key_are_fsynced_before_the_commit_that_completes_it(
    store_path, origin, tmp_path, watch, settings, form
):
    uri = tmp_path / "out" / "new" / "%(batch_id)03d.out"
    settings = {**WITHOUT, **settings, **feed(uri, format=form)}
    crawled = await crawl(store_path, Three, keys(origin), settings)
    assert crawled.counts == {"done": 12}
    assert sorted(watch.checked) == sorted(keys(origin))
    assert watch.missing == []
    # The entries of what is new are on disk, too.
    assert {str(tmp_path), str(tmp_path / "out"), str(uri.parent)} <= set(watch.folders)


@crawl_test
async def test_with_synchronous_normal_they_are_flushed_and_nothing_is_fsynced(
    store_path, origin, tmp_path, watch
):
    watch.durable = False
    location = f"sqlite:///{store_path}?synchronous=NORMAL"
    settings = {**WITHOUT, "HEXSHARD_STORE": location, **feed(tmp_path / "items.jsonl")}
    crawled = await crawl(store_path, Three, keys(origin), settings)
    assert crawled.counts == {"done": 12}
    assert sorted(watch.checked) == sorted(keys(origin))
    assert watch.missing == []
    assert watch.pressed == {}


@crawl_test
async def test_no_descriptor_is_left_open(store_path, origin, tmp_path):
    def feeds() -> list[str]:
        links = []
        for descriptor in list(Path("/proc/self/fd").iterdir()):
            with suppress(FileNotFoundError):  # closed meanwhile by another thread
                links.append(str(descriptor.readlink()))
        return [link for link in links if str(tmp_path) in link and link.endswith(".jsonl")]

    open_meanwhile = []

    class Looks(Plain):
        async def parse(self, response: Any) -> Any:
            if response.url.endswith("last"):
                await until(lambda: self.stat("hexshard/done") == 40)
                open_meanwhile.extend(feeds())
            yield {"url": response.url}

    settings = {**WITHOUT, **feed(tmp_path / "%(batch_id)d.jsonl", batch_item_count=1)}
    pages = [*keys(origin, 40), f"{origin}/ok?last"]
    crawled = await crawl(store_path, Looks, pages, settings)
    assert crawled.counts == {"done": 41}
    assert len(list(tmp_path.glob("*.jsonl"))) == 41
    assert open_meanwhile == feeds() == []


# What cannot be written.


@crawl_test
async def test_a_feed_that_cannot_be_written_completes_nothing_and_stops_the_worker(
    store_path, origin, caplog
):
    caplog.set_level(logging.ERROR)
    settings = {**WITHOUT, **feed("/dev/full")}
    crawled = await crawl(store_path, Plain, keys(origin), settings)
    assert crawled.counts == {"pending": 12}
    assert crawled.reason == "feed_error"
    [said] = [each.message for each in caplog.records if "scrapy_hexshard" in each.name]
    assert "Cannot write the feed /dev/full: No space left on device." in said


@crawl_test
async def test_a_feed_that_cannot_be_fsynced_completes_nothing_and_stops_the_worker(
    store_path, origin, tmp_path, monkeypatch, caplog
):
    caplog.set_level(logging.ERROR)

    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(feed_files.os, "fsync", broken)
    settings = {**WITHOUT, **feed(tmp_path / "items.jsonl")}
    crawled = await crawl(store_path, Plain, keys(origin), settings)
    assert crawled.counts == {"pending": 12}
    assert crawled.reason == "feed_error"
    assert "Input/output error" in caplog.text
    # After that the same crawl goes on, and lines are repeated.
    monkeypatch.undo()
    crawled = await crawl(store_path, Plain, [], settings)
    assert crawled.counts == {"done": 12}
    assert {item["url"] for item in lines(tmp_path / "items.jsonl")} == set(keys(origin))


@crawl_test
async def test_after_a_failed_fsync_no_later_one_is_trusted(
    store_path, origin, tmp_path, monkeypatch
):
    fsync, calls = os.fsync, []

    def broken_once(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:
            raise OSError(5, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(feed_files.os, "fsync", broken_once)
    settings = {**WITHOUT, "HEXSHARD_MAX_UNITS": 2, **feed(tmp_path / "items.jsonl")}
    crawled = await crawl(store_path, Plain, keys(origin, 40), settings)
    assert crawled.counts == {"pending": 40}


class Unwritable(Plain):
    def parse(self, response: Any) -> Any:
        yield {"url": response.url, "value": object() if response.url.endswith("1") else 1}


@crawl_test
async def test_an_item_the_exporter_cannot_write_fails_its_key(store_path, origin, tmp_path):
    settings = {**WITHOUT, **feed(tmp_path / "items.jsonl")}
    crawled = await crawl(store_path, Unwritable, keys(origin, 3), settings)
    assert crawled.outcomes == {"done": 2, "feed: TypeError": 1}
    assert len(lines(tmp_path / "items.jsonl")) == 2


class FullDisk(FileFeedStorage):
    """Its file can be written, but not closed."""

    def store(self, file: Any) -> None:
        file.close()
        raise OSError(28, "No space left on device")


@crawl_test
async def test_a_batch_that_cannot_be_closed_fails_the_units_in_it_that_are_open(
    store_path, origin, tmp_path
):
    class Wide(Plain):
        def parse(self, response: Any) -> Any:
            yield {"url": response.url}
            yield self.follow(response, f"/slow?t=0.3&{response.url[-1]}", callback=self.leaf)

        def leaf(self, response: Any) -> Any:
            return None

    settings = {
        **WITHOUT,
        **feed(tmp_path / "%(batch_id)d.jsonl"),
        "FEED_STORAGES": {"": FullDisk},
        "FEED_EXPORT_BATCH_ITEM_COUNT": 1,
    }
    crawled = await crawl(store_path, Wide, keys(origin, 3), settings)
    assert crawled.outcomes == {"feed: OSError": 3}


@pytest.mark.parametrize("uri", ["nowhere://host/items.jsonl", "items-%(unknown)s.jsonl"])
@crawl_test
async def test_feeds_that_scrapy_cannot_open_stop_the_worker(store_path, origin, caplog, uri):
    settings = {**WITHOUT, **feed(uri)}
    crawled = await crawl(store_path, Plain, keys(origin), settings)
    assert crawled.counts == {"pending": 12}
    assert crawled.reason == "feed_error"
    assert "Scrapy could not open the feeds" in caplog.text


@crawl_test
async def test_feeds_that_are_turned_off_are_no_concern(store_path, origin, tmp_path):
    settings = {
        **feed(tmp_path / "items.jsonl"),
        "EXTENSIONS": {"scrapy.extensions.feedexport.FeedExporter": None},
    }
    crawled = await crawl(store_path, Plain, keys(origin), settings)
    assert crawled.counts == {"done": 12}
    assert not (tmp_path / "items.jsonl").exists()


class OtherExporter(FeedExporter):
    """Takes its items another way."""

    @classmethod
    def from_crawler(cls, crawler: Any) -> Any:
        self = super().from_crawler(crawler)
        crawler.signals.disconnect(self.item_scraped, signals.item_scraped)
        crawler.signals.connect(self.take, signals.item_scraped)
        return self

    def take(self, item: Any, spider: Any) -> None:
        self.item_scraped(item, spider)


@crawl_test
async def test_an_exporter_that_cannot_be_watched_stops_the_worker(
    store_path, origin, tmp_path, caplog
):
    extensions = {"scrapy.extensions.feedexport.FeedExporter": None, OtherExporter: 0}
    settings = {**feed(tmp_path / "items.jsonl"), "EXTENSIONS": extensions}
    crawled = await crawl(store_path, Plain, keys(origin), settings)
    assert crawled.counts == {"pending": 12}
    assert crawled.reason == "feed_error"
    assert "OtherExporter is no FeedExporter as Scrapy has it" in caplog.text


def test_lines_that_come_while_the_rest_is_pressed_are_pressed_the_next_time(tmp_path, monkeypatch):
    path = tmp_path / "items.jsonl"
    opened = path.open("ab")
    file, files = FeedFile(opened, "items.jsonl", []), FeedFiles()
    pressed: list[bytes] = []

    def fsync(descriptor: int) -> None:
        pressed.append(path.read_bytes())
        if len(pressed) == 1:  # meanwhile, in the reactor
            opened.write(b"2")
            opened.close()
            files.closed(file)

    monkeypatch.setattr(feed_files.os, "fsync", fsync)
    opened.write(b"1")
    files.flush(file)
    for _ in range(3):
        files.press(durable=True)
    assert pressed == [b"1", b"12"]


# What an earlier run left.


@pytest.mark.parametrize("form", ["jsonlines", "csv"])
@crawl_test
async def test_a_line_torn_by_a_kill_does_not_swallow_the_next_one(
    store_path, origin, tmp_path, caplog, form
):
    path = tmp_path / "items.out"
    path.write_text('{"url": "http://h.exam')
    await crawl(store_path, Plain, keys(origin, 1), {**WITHOUT, **feed(path, format=form)})
    torn, *written = path.read_text().splitlines()
    assert torn == '{"url": "http://h.exam'
    assert f"{origin}/ok?0" in written[-1]
    assert len(written) == (1 if form == "jsonlines" else 2)
    assert "has no end" in caplog.text


@crawl_test
async def test_a_file_that_ends_well_is_appended_to_as_it_is(store_path, origin, tmp_path, caplog):
    path = tmp_path / "items.jsonl"
    path.write_text('{"url": "x"}\n')
    await crawl(store_path, Plain, keys(origin, 1), {**WITHOUT, **feed(path)})
    assert path.read_text() == f'{{"url": "x"}}\n{{"url": "{origin}/ok?0"}}\n'
    assert "has no end" not in caplog.text


@crawl_test
async def test_what_is_compressed_is_left_alone(store_path, origin, tmp_path):
    path = tmp_path / "items.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"url": "x"}\n'))
    plugins = ["scrapy.extensions.postprocessing.GzipPlugin"]
    settings = {**WITHOUT, **feed(path, postprocessing=plugins)}
    await crawl(store_path, Plain, keys(origin, 1), settings)
    written = gzip.decompress(path.read_bytes()).decode()
    assert written == f'{{"url": "x"}}\n{{"url": "{origin}/ok?0"}}\n'


# Which items go where.


@crawl_test
async def test_a_failed_unit_presses_nothing(store_path, origin, tmp_path, watch):
    class Fails(Plain):
        def parse(self, response: Any) -> Any:
            yield {"url": response.url}
            raise KeyError("late")

    settings = {**WITHOUT, **feed(tmp_path / "items.jsonl")}
    crawled = await crawl(store_path, Fails, keys(origin), settings)
    assert crawled.counts == {"dead": 12}
    assert watch.pressed == {}


@crawl_test
async def test_without_feeds_nothing_is_watched(store_path, origin, watch):
    crawled = await crawl(store_path, Plain, keys(origin))
    assert crawled.counts == {"done": 12}
    assert watch.pressed == {}
