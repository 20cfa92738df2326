"""HEXSHARD_COMPLETE_AFTER = "feed": a key is complete once every batch with its items is stored."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from scrapy.utils.defer import deferred_from_coro
from support.crawling import REACTORLESS, Crawl, crawl, crawl_test, run, together
from support.feeding import feed, lines, opened, remote, remote_feed
from support.spiders import Plain, nap, until
from twisted.internet.defer import Deferred

from scrapy_hexshard import ShardSpec, SQLiteWorkStore
from scrapy_hexshard.components import feed_hold
from scrapy_hexshard.errors import SettingError

WAITS: dict[str, Any] = {"HEXSHARD_COMPLETE_AFTER": "feed", "HEXSHARD_ITEMS": False}


def keys(origin: str, count: int = 6) -> list[str]:
    return [f"{origin}/ok?{number}" for number in range(count)]


def counts(path: Path) -> dict[str, int]:
    with SQLiteWorkStore(str(path), readonly=True) as store:
        return {str(state): n for state, n in store.counts(all_shards=True).items() if n}


def reason(path: Path) -> str:
    """Why the last worker says it ended, which only the store has."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT reason FROM workers ORDER BY id DESC").fetchone()[0]


async def beside(crawling: Any, check: Any) -> Crawl:
    """The result of a crawl, beside which *check* runs."""
    if REACTORLESS:
        task = asyncio.ensure_future(crawling)
        await check()
        return await task
    started = Deferred.fromCoroutine(crawling)
    await deferred_from_coro(check())
    return await started


# Batches.


@crawl_test
async def test_a_key_is_done_only_once_its_batch_is_stored(store_path, origin):
    storage = remote(slow=True)
    seen = []

    async def check() -> None:
        with opened(storage):
            await until(lambda: len(storage.asked) == 3)
            # By now the store has heard of everything that it will hear of.
            await nap(0.5)
            seen.append(counts(store_path))

    settings = {**WAITS, **remote_feed(storage, 2)}
    crawled = await beside(crawl(store_path, Plain, keys(origin), settings), check)
    assert seen == [{"running": 6}]
    assert crawled.counts == {"done": 6}
    assert storage.urls() == keys(origin)
    assert crawled.reason == reason(store_path) == "finished"
    assert crawled.stat("hexshard/held_for_feeds") == 6


@crawl_test
async def test_keys_are_done_batch_by_batch_and_the_rest_at_the_end(store_path, origin):
    storage = remote()

    class Last(Plain):
        async def parse(self, response: Any) -> Any:
            if response.url.endswith("last"):
                await until(lambda: counts(store_path).get("done", 0) == 4)
            yield {"url": response.url}

    pages = [*keys(origin, 4), f"{origin}/ok?last"]
    crawled = await crawl(store_path, Last, pages, {**WAITS, **remote_feed(storage, 2)})
    assert crawled.counts == {"done": 5}
    assert storage.urls() == sorted(pages)
    assert crawled.reason == reason(store_path) == "finished"


@crawl_test
async def test_a_failed_upload_fails_the_keys_whose_items_it_held_and_no_other(store_path, origin):
    storage = remote(ConnectionError("gone"))
    settings = {**WAITS, **remote_feed(storage, 2), "CONCURRENT_REQUESTS": 1}
    crawled = await crawl(store_path, Plain, keys(origin), settings)
    assert crawled.outcomes == {"done": 4, "feed: ConnectionError": 2}
    assert crawled.counts == {"done": 4, "dead": 2}
    assert storage.urls() == keys(origin)[2:]
    assert crawled.stat("feedexport/failed_count/Own") == 1


@crawl_test
async def test_keys_whose_upload_failed_are_tried_again(store_path, origin):
    storage = remote(ConnectionError("gone"), slow=True)

    async def check() -> None:
        with opened(storage):
            await until(lambda: len(storage.asked) == 3)
            # Nothing is left to do but to wait for the uploads, and the worker knows by now.
            await nap(0.5)

    settings = {**WAITS, **remote_feed(storage, 2), "HEXSHARD_MAX_ATTEMPTS": 2}
    crawled = await beside(crawl(store_path, Plain, keys(origin), settings), check)
    assert crawled.outcomes == {"done": 6}
    assert crawled.stat("hexshard/outcome/feed: ConnectionError") == 2
    assert storage.urls() == keys(origin)
    assert crawled.reason == reason(store_path) == "finished"


@crawl_test
async def test_a_key_whose_items_are_in_several_batches_waits_for_all_of_them(store_path, origin):
    class Five(Plain):
        def parse(self, response: Any) -> Any:
            for part in range(5):
                yield {"url": response.url, "part": part}

    storage = remote()
    settings = {**WAITS, **remote_feed(storage, 2), "HEXSHARD_MAX_ATTEMPTS": 2}
    storage.failing = [ConnectionError("gone")]
    crawled = await crawl(store_path, Five, keys(origin, 1), settings)
    assert crawled.counts == {"done": 1}
    assert crawled.stat("hexshard/outcome/feed: ConnectionError") == 1
    # The first attempt left four items, one of which is in a batch with the second one's first.
    assert len(storage.urls()) == 8


@crawl_test
async def test_a_key_waits_only_for_the_feeds_its_items_went_to(store_path, origin):
    class Even:
        def __init__(self, options: Any) -> None:
            pass

        def accepts(self, item: Any) -> bool:
            return int(item["url"][-1]) % 2 == 0

    class Odd(Even):
        def accepts(self, item: Any) -> bool:
            return not super().accepts(item)

    good, bad = remote(), remote(ConnectionError("gone"))
    settings = {
        **WAITS,
        "FEEDS": {
            "good://host/all.jsonl": {"format": "jsonlines", "item_filter": Even},
            "bad://host/all.jsonl": {"format": "jsonlines", "item_filter": Odd},
        },
        "FEED_STORAGES": {"good": good, "bad": bad},
    }
    crawled = await crawl(store_path, Plain, keys(origin), settings)
    assert crawled.outcomes == {"done": 3, "feed: ConnectionError": 3}
    assert good.urls() == keys(origin)[::2]


@crawl_test
async def test_a_key_without_items_waits_for_nothing(store_path, origin):
    class Empty(Plain):
        def parse(self, response: Any) -> Any:
            if response.url.endswith("0"):
                yield {"url": response.url}

    storage = remote(ConnectionError("gone"))
    crawled = await crawl(store_path, Empty, keys(origin), {**WAITS, **remote_feed(storage)})
    assert crawled.outcomes == {"empty": 5, "feed: ConnectionError": 1}
    assert crawled.stat("hexshard/held_for_feeds") == 1


# A feed that closes when the crawl does.


@crawl_test
async def test_without_batches_the_worker_ends_and_its_keys_are_done_then(store_path, origin):
    storage = remote()
    crawled = await crawl(store_path, Plain, keys(origin), {**WAITS, **remote_feed(storage)})
    assert crawled.counts == {"done": 6}
    assert storage.urls() == keys(origin)
    assert crawled.stat("hexshard/held_for_feeds") == 6
    assert crawled.reason == reason(store_path) == "finished"


@crawl_test
async def test_the_worker_waits_for_an_upload_that_is_slow_in_the_end_and_keeps_its_leases(
    store_path, origin
):
    storage = remote(slow=True)
    taken: list[Any] = []

    async def check() -> None:
        with opened(storage):
            await until(lambda: storage.asked)
            await nap(2.5)
            with SQLiteWorkStore(str(store_path), ShardSpec(0, 1)) as other:
                taken.extend(other.claim())

    settings = {**WAITS, **remote_feed(storage), "HEXSHARD_LEASE_SECONDS": 1}
    # It is not only the timeout that keeps them.
    settings["HEXSHARD_UNIT_TIMEOUT"] = 1.5
    crawled = await beside(crawl(store_path, Plain, keys(origin), settings), check)
    assert taken == []
    assert crawled.counts == {"done": 6}
    assert crawled.stat("hexshard/stale") == 0


@crawl_test
async def test_leases_of_keys_that_wait_are_kept(store_path, origin):
    storage = remote()
    taken: list[Any] = []

    class Long(Plain):
        async def parse(self, response: Any) -> Any:
            if "hold" in response.url:
                await nap(2.5)
                with SQLiteWorkStore(str(store_path), ShardSpec(0, 1)) as other:
                    taken.extend(other.claim())
            yield {"url": response.url}

    pages = [*keys(origin), f"{origin}/ok?hold"]
    settings = {**WAITS, **remote_feed(storage), "HEXSHARD_LEASE_SECONDS": 1}
    crawled = await crawl(store_path, Long, pages, settings)
    assert taken == []
    assert crawled.counts == {"done": 7}


@crawl_test
async def test_a_feed_that_cannot_be_stored_in_the_end_leaves_the_shard_unfinished(
    store_path, origin, caplog
):
    storage = remote(ConnectionError("gone"))
    settings = {**WAITS, **remote_feed(storage), "HEXSHARD_MAX_ATTEMPTS": 3}
    crawled = await crawl(store_path, Plain, keys(origin), settings)
    assert crawled.counts == {"failed": 6}
    assert reason(store_path) == "unfinished"
    assert "keys of this shard are left now that its feeds have closed" in caplog.text
    # The same command again.
    crawled = await crawl(store_path, Plain, [], settings)
    assert crawled.counts == {"done": 6}
    assert reason(store_path) == "finished"
    assert storage.urls() == keys(origin)


@crawl_test
async def test_an_exporter_that_fails_at_the_end_of_its_file_fails_the_keys(store_path, origin):
    from scrapy.exporters import JsonLinesItemExporter

    class Unended(JsonLinesItemExporter):
        def finish_exporting(self) -> None:
            self.file.close()
            raise ValueError("no end")

    storage = remote()
    settings = {**WAITS, **remote_feed(storage), "FEED_EXPORTERS": {"jsonlines": Unended}}
    crawled = await crawl(store_path, Plain, keys(origin), settings)
    assert crawled.outcomes == {"feed: ValueError": 6}
    assert storage.stored == {}


@crawl_test
async def test_a_storage_that_answers_at_once_or_with_a_coroutine_will_do(store_path, origin):
    kept: list[str] = []

    class AtOnce:
        def __init__(self, uri: str, *, feed_options: Any = None) -> None:
            self.late = "late" in uri

        def open(self, spider: Any) -> Any:
            from io import BytesIO

            return BytesIO()

        def store(self, file: Any) -> Any:
            if self.late:
                return self.keep(file)
            kept.append(file.getvalue().decode())
            return None

        async def keep(self, file: Any) -> None:
            await nap(0.05)
            kept.append(file.getvalue().decode())

    for number, host in enumerate(("now", "late")):
        path = store_path.with_name(f"{host}.sqlite3")
        settings = {**WAITS, **feed(f"own://{host}/all.jsonl"), "FEED_STORAGES": {"own": AtOnce}}
        crawled = await crawl(path, Plain, keys(origin), settings)
        assert crawled.counts == {"done": 6}
        assert kept[number].count("\n") == 6


@crawl_test
async def test_local_files_will_do_too_and_are_on_disk_first(store_path, origin, tmp_path):
    settings = {**WAITS, **feed(tmp_path / "%(batch_id)d.jsonl"), "FEED_EXPORT_BATCH_ITEM_COUNT": 4}
    crawled = await crawl(store_path, Plain, keys(origin), settings)
    assert crawled.counts == {"done": 6}
    assert [len(lines(tmp_path / f"{number}.jsonl")) for number in (1, 2)] == [4, 2]


@crawl_test
async def test_items_may_be_stored_with_their_keys_as_well(store_path, origin):
    storage = remote()
    settings = {**WAITS, **remote_feed(storage, 4), "HEXSHARD_ITEMS": True}
    crawled = await crawl(store_path, Plain, keys(origin), settings)
    assert crawled.counts == {"done": 6}
    assert sorted(item["url"] for item in crawled.items) == storage.urls() == keys(origin)


@pytest.mark.parametrize("count", [0, 2])
@crawl_test
async def test_many_keys_that_wait_for_an_endless_feed_are_warned_of_once(
    store_path, origin, monkeypatch, caplog, count
):
    monkeypatch.setattr(feed_hold, "MANY_WAIT", 2)
    storage = remote()
    await crawl(store_path, Plain, keys(origin), {**WAITS, **remote_feed(storage, count)})
    said = [each.message for each in caplog.records if "keys wait for a feed" in each.message]
    assert len(said) == (0 if count else 1)
    assert all("%(batch_time)s" in each for each in said)


# What cannot be.


@crawl_test
async def test_waiting_for_feeds_without_a_feed_is_refused(store_path, origin):
    with pytest.raises(SettingError, match="there is none"):
        await crawl(store_path, Plain, keys(origin), WAITS)


@crawl_test
async def test_waiting_for_feeds_while_links_are_keys_is_refused(store_path, origin, tmp_path):
    settings = {**WAITS, **feed(tmp_path / "items.jsonl"), "HEXSHARD_FOLLOW": "key"}
    with pytest.raises(SettingError, match="holds the links of a page back"):
        await crawl(store_path, Plain, keys(origin), settings)


@crawl_test
async def test_a_link_stays_with_its_page_as_its_feed_may_close_last(store_path, origin):
    class Links(Plain):
        def parse(self, response: Any) -> Any:
            yield {"url": response.url}
            if response.url.endswith("?0"):
                yield self.follow(response, "/ok?found", meta={"shard_key": "found"})

    storage = remote()
    settings = {**WAITS, **remote_feed(storage, uri="remote://host/%(time)s.jsonl")}
    crawled = await crawl(store_path, Links, keys(origin, 1), settings)
    assert crawled.counts == {"done": 1}
    assert crawled.stat("hexshard/links_kept") == 1
    assert reason(store_path) == "finished"
    assert storage.urls() == [f"{origin}/ok?0", f"{origin}/ok?found"]


@crawl_test
async def test_two_workers_of_one_shard_do_not_wait_for_each_others_feeds(store_path, origin):
    class Slow(Plain):
        async def parse(self, response: Any) -> Any:
            await nap(0.05)
            yield {"url": response.url}

    storage = remote()
    pages = keys(origin, 40)
    with SQLiteWorkStore(str(store_path), ShardSpec(0, 1)) as store:
        store.enqueue(pages)
    feeds = [remote_feed(storage, uri=f"remote://host/{n}-%(time)s.jsonl") for n in range(2)]
    stored = {"HEXSHARD_STORE": str(store_path), "HEXSHARD_MAX_UNITS": 2, **WAITS}
    crawlers = await together(*(run(Slow, {**stored, **each}) for each in feeds))
    assert Crawl(crawlers[0], store_path).counts == {"done": 40}
    assert storage.urls() == sorted(pages)
    assert all(each.stats.get_value("hexshard/done") for each in crawlers)


@crawl_test
async def test_a_key_done_at_the_end_of_its_unit_warns_of_feeds_that_are_stored_later(
    store_path, origin, tmp_path, caplog
):
    caplog.set_level(logging.WARNING)
    plugins = ["scrapy.extensions.postprocessing.GzipPlugin"]
    feeds = {
        "remote://host/all.jsonl": {"format": "jsonlines"},
        str(tmp_path / "items.jsonl.gz"): {"format": "jsonlines", "postprocessing": plugins},
        str(tmp_path / "items.jsonl"): {"format": "jsonlines"},
    }
    settings = {"FEEDS": feeds, "FEED_STORAGES": {"remote": remote()}}
    await crawl(store_path, Plain, keys(origin), settings)
    said = [each.message for each in caplog.records if "safe only once" in each.message]
    assert len(said) == 2
    assert all("HEXSHARD_COMPLETE_AFTER = 'feed'" in each for each in said)
    caplog.clear()
    settings["FEEDS"].popitem()
    new = store_path.with_name("new.sqlite3")
    await crawl(new, Plain, keys(origin), {**WAITS, **settings})
    assert "safe only once" not in caplog.text
