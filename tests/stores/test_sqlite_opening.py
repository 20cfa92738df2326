"""What may be opened as a store, what is refused, and that a refusal changes nothing."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from scrapy_hexshard import (
    HexShardError,
    Settlement,
    ShardError,
    ShardSpec,
    SQLiteWorkStore,
    StoreError,
    StoreMismatchError,
    StoreUnavailableError,
    open_store,
)
from scrapy_hexshard.store.named_queries import named_queries
from scrapy_hexshard.store.sqlite import filesystems, opening

ALONE = ShardSpec(0, 1)
NOBODY = 65534


def everything_in(folder):
    """Every file with its bytes, but for the index of the log, which has no contents of its own."""
    return {
        file: None if file.is_dir() else file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if not file.name.endswith("-shm")
    }


@pytest.fixture
def nothing_changes(tmp_path):
    """Checks afterwards that the folder is as the test left it before the refusal."""
    recorded = []
    yield lambda: recorded.append(everything_in(tmp_path))
    assert recorded == [everything_in(tmp_path)]


class TestAddresses:
    def test_a_path_may_be_a_path_object_or_text(self, path):
        with SQLiteWorkStore(path, ALONE) as store:
            store.enqueue(["key"])
        with SQLiteWorkStore(str(path), ALONE) as store:
            assert store.counts()["pending"] == 1

    def test_a_url_may_be_relative_or_absolute(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with open_store("sqlite:///crawl.sqlite3", 1) as store:
            store.enqueue(["key"])
        with open_store(f"sqlite:///{tmp_path}/crawl.sqlite3", 1) as store:
            assert store.counts()["pending"] == 1

    def test_a_url_may_hold_escapes_that_a_path_holds_as_they_are(self, tmp_path):
        open_store(f"sqlite:///{tmp_path}/a%20b.sqlite3", 1).close()
        open_store(f"{tmp_path}/c%20d?#.sqlite3", 1).close()
        names = {file.name for file in tmp_path.iterdir()}
        assert {"a b.sqlite3", "c%20d?#.sqlite3"} <= names

    @pytest.mark.parametrize(
        "address",
        [
            "",
            ":memory:",
            "sqlite:///",
            "sqlite:///:memory:",
            "sqlite://crawl.sqlite3",
            "sqlite:crawl.sqlite3",
            "sqlite:///crawl.sqlite3?synchronous=OFF",
            "sqlite:///crawl.sqlite3?mode=ro",
            "mysql://host/crawl",
        ],
    )
    def test_what_names_no_file_is_refused(self, address, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        for open_it in (SQLiteWorkStore, open_store):
            with pytest.raises(StoreError):
                open_it(address, 1)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(("query", "level"), [("", 2), ("?synchronous=normal", 1)])
    def test_synchronous_is_full_unless_told_otherwise(self, path, query, level):
        with SQLiteWorkStore(f"sqlite:///{path}{query}", ALONE) as store:
            assert store._db.rows("PRAGMA synchronous") == [(level,)]

    def test_two_names_of_one_file_share_a_gate(self, path, tmp_path):
        link = tmp_path / "link.sqlite3"
        link.symlink_to(path)
        with SQLiteWorkStore(path, ALONE), SQLiteWorkStore(link, ALONE):
            assert not (tmp_path / "link.sqlite3.lock").exists()

    def test_a_store_stays_where_it_is_when_the_process_moves(self, tmp_path, monkeypatch):
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path)
        with SQLiteWorkStore("crawl.sqlite3", ALONE) as store:
            monkeypatch.chdir(tmp_path / "elsewhere")
            assert store.enqueue(["key"]) == 1


class TestRefusals:
    def test_a_missing_store_is_not_created_without_a_shard_count(self, path, tmp_path):
        with pytest.raises(StoreUnavailableError, match="hexdigest-shard load"):
            SQLiteWorkStore(path)
        with pytest.raises(StoreUnavailableError, match="no store"):
            SQLiteWorkStore(path, ALONE, create=False)
        with pytest.raises(StoreUnavailableError, match="no store"):
            SQLiteWorkStore(path, ALONE, readonly=True)
        assert list(tmp_path.iterdir()) == []

    def test_an_empty_file_is_a_store_to_be(self, path):
        path.touch()
        with pytest.raises(StoreUnavailableError, match="no store"):
            SQLiteWorkStore(path)
        with SQLiteWorkStore(path, ALONE) as store:
            assert store.enqueue(["key"]) == 1

    def test_a_store_whose_creation_was_cut_short_is_created_again(self, path, query):
        query("PRAGMA application_id = 1212504147")
        with pytest.raises(StoreUnavailableError, match="no store"):
            SQLiteWorkStore(path)
        with SQLiteWorkStore(path, ALONE) as store:
            assert store.enqueue(["key"]) == 1

    @pytest.mark.parametrize("content", [b"x", b"key,value\n" * 1000, b"SQLite format 3\0" * 9])
    def test_a_file_that_is_no_database(self, path, content, nothing_changes):
        path.write_bytes(content)
        nothing_changes()
        with pytest.raises(StoreUnavailableError, match="not a"):
            SQLiteWorkStore(path, ALONE)

    @pytest.mark.parametrize("mode", ["DELETE", "WAL"])
    def test_a_database_of_something_else(self, path, query, mode, nothing_changes):
        query(f"PRAGMA journal_mode = {mode}")
        query("CREATE TABLE theirs (x)")
        nothing_changes()
        with pytest.raises(StoreUnavailableError, match="something else"):
            SQLiteWorkStore(path, ALONE)

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ("UPDATE meta SET value = 99 WHERE name = 'schema'", "schema 99"),
            ("UPDATE meta SET value = 0 WHERE name = 'key_version'", "canonical form 0"),
            ("UPDATE meta SET value = 4 WHERE name = 'shards'", "4 shards, not 1"),
        ],
    )
    def test_a_store_of_another_kind(self, path, query, change, told, nothing_changes):
        SQLiteWorkStore(path, ALONE).close()
        query(change)
        nothing_changes()
        with pytest.raises(StoreMismatchError, match=told):
            SQLiteWorkStore(path, ALONE)

    def test_a_shard_count_that_is_none(self, path, tmp_path):
        with pytest.raises(ShardError):
            SQLiteWorkStore(path, 0)
        assert list(tmp_path.iterdir()) == []

    def test_a_folder_that_does_not_exist(self, tmp_path):
        with pytest.raises(StoreUnavailableError, match=r"folder .* does not exist"):
            SQLiteWorkStore(tmp_path / "no" / "crawl.sqlite3", ALONE)
        assert list(tmp_path.iterdir()) == []

    def test_a_path_that_is_a_folder(self, tmp_path):
        with pytest.raises(StoreUnavailableError, match="is a folder"):
            SQLiteWorkStore(tmp_path, ALONE)

    def test_a_path_that_is_a_device(self):
        with pytest.raises(StoreUnavailableError, match="regular file"):
            SQLiteWorkStore("/dev/null", ALONE)

    def test_a_link_to_itself(self, path):
        path.symlink_to(path)
        with pytest.raises(StoreUnavailableError, match="symbolic links"):
            SQLiteWorkStore(path, ALONE)

    def test_a_folder_with_an_impossible_name(self, tmp_path):
        with pytest.raises(StoreUnavailableError, match="name too long"):
            SQLiteWorkStore(tmp_path / ("x" * 300) / "crawl.sqlite3", ALONE)

    def test_a_path_through_a_file(self, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(StoreUnavailableError, match="folder"):
            SQLiteWorkStore(tmp_path / "file" / "crawl.sqlite3", ALONE)

    @pytest.mark.parametrize("kind", ["nfs4", "cifs", "smb3", "9p", "fuse.sshfs"])
    def test_a_network_file_system(self, path, tmp_path, monkeypatch, kind):
        mounts = tmp_path / "mounts"
        mounts.write_text(
            f"1 0 0:1 / / rw - ext4 /dev/vda rw\n2 1 0:2 / {tmp_path} rw - {kind} host:/ rw\n"
        )
        monkeypatch.setattr(filesystems, "MOUNTS", mounts)
        with pytest.raises(StoreUnavailableError, match=f"{kind}.*local disk"):
            SQLiteWorkStore(path, ALONE)
        assert list(tmp_path.iterdir()) == [mounts]

    def test_a_python_with_an_old_sqlite(self):
        with pytest.raises(StoreError, match=r"3\.36\.0.*3\.37\.0"):
            opening.check_sqlite((3, 36, 0))
        opening.check_sqlite((3, 37, 0))


def as_nobody(code, *arguments):
    """What *code* prints, or its error, run by a user without rights of its own."""
    # An interpreter in a private folder could not import anything for that user.
    script = (
        "import os, sys\n"
        "from scrapy_hexshard import SQLiteWorkStore, ShardSpec, HexShardError\n"
        "import scrapy_hexshard.store.sqlite.store\n"
        "if os.geteuid() == 0:\n"
        f"    os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "try:\n"
        f"    {code}\n"
        "except HexShardError as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    command = [sys.executable, "-c", script, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return result.stdout


@pytest.fixture
def public():
    """A folder that any user may enter, but not write; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755 if os.geteuid() == 0 else 0o555)
        yield folder
        folder.chmod(0o755)


class TestRights:
    def test_a_folder_that_cannot_be_written(self, public):
        told = as_nobody("SQLiteWorkStore(sys.argv[1], ShardSpec(0, 1))", public / "x.sqlite3")
        assert told.startswith("StoreUnavailableError Cannot write in the folder")
        assert list(public.iterdir()) == []

    def test_a_file_that_cannot_be_written(self, public):
        path = public / "x.sqlite3"
        public.chmod(0o755)
        SQLiteWorkStore(path, ALONE).close()
        path.chmod(0o444)
        public.chmod(0o777)
        before = everything_in(public)
        told = as_nobody("SQLiteWorkStore(sys.argv[1], ShardSpec(0, 1))", path)
        assert told.startswith("StoreUnavailableError Cannot write")
        assert everything_in(public) == before

    def test_a_reader_needs_no_right_to_write(self, public):
        path = public / "x.sqlite3"
        public.chmod(0o755)
        with SQLiteWorkStore(path, ALONE) as store:
            store.enqueue(["key"])
        path.chmod(0o444)
        code = "print(SQLiteWorkStore(sys.argv[1], readonly=True).counts()['pending'])"
        assert as_nobody(code, path) == "1\n"
        assert {file.name for file in public.iterdir()} == {"x.sqlite3", "x.sqlite3.lock"}


class TestReadOnly:
    def test_reading_a_closed_store_creates_and_changes_nothing(self, path, tmp_path):
        with SQLiteWorkStore(path, ALONE) as store:
            store.enqueue(["key"])
        before = everything_in(tmp_path)
        names = sorted(tmp_path.iterdir())
        with SQLiteWorkStore(path, readonly=True) as reader:
            assert reader.counts()["pending"] == 1
            assert sorted(tmp_path.iterdir()) == names
        assert everything_in(tmp_path) == before

    def test_a_reader_follows_a_writer_that_comes_and_goes(self, path):
        SQLiteWorkStore(path, ALONE).close()
        with SQLiteWorkStore(path, readonly=True) as reader:
            assert reader.counts()["pending"] == 0
            with SQLiteWorkStore(path, ALONE) as store:
                store.enqueue(["a"])
                assert reader.counts()["pending"] == 1
                store.enqueue(["b"])
                assert reader.counts()["pending"] == 2
            with SQLiteWorkStore(path, ALONE) as store:
                store.enqueue(["c"])
            assert reader.counts()["pending"] == 3

    def test_a_reader_that_saw_no_writer_sees_what_one_left(self, path):
        SQLiteWorkStore(path, ALONE).close()
        with SQLiteWorkStore(path, readonly=True) as reader:
            with SQLiteWorkStore(path, ALONE) as store:
                store.enqueue(["a"])
            assert reader.counts()["pending"] == 1

    def test_a_reader_waits_for_nobody(self, path, store):
        store.enqueue(["key"])
        with store.group():
            store.enqueue(["more"])
            with SQLiteWorkStore(path, readonly=True) as reader:
                assert reader.counts()["pending"] == 1

    def test_items_are_read_without_holding_the_log_back(self, path, store):
        keys = [str(n) for n in range(1500)]
        store.enqueue(keys)
        with SQLiteWorkStore(path, readonly=True) as reader:
            claims = store.claim(1500)
            store.settle(Settlement.complete(claim, items=["1"]) for claim in claims)
            lines = reader.item_lines()
            next(lines)
            busy, log, moved = store._db.rows("PRAGMA wal_checkpoint(RESTART)")[0]
            assert (busy, moved) == (0, log)
            assert sum(1 for _ in lines) == 1499


class TestPragmas:
    def test_every_one_that_matters_is_set(self, store):
        def pragma(name):
            return store._db.rows(f"PRAGMA {name}")[0][0]

        assert pragma("journal_mode") == "wal"
        assert pragma("synchronous") == 2
        assert pragma("busy_timeout") == 120_000
        assert pragma("mmap_size") == 0
        assert pragma("secure_delete") == 0
        assert pragma("application_id") == 0x48455853
        assert pragma("locking_mode") == "normal"

    def test_what_a_power_cut_must_not_undo_is_pressed_to_disk(self, store):
        def pressed():
            return store._db.rows("PRAGMA synchronous")[0][0] == 2

        store.enqueue(["a", "b"])
        assert pressed()
        first, second = store.claim()
        assert not pressed()
        store.complete(first)
        assert pressed()
        store.renew([second])
        assert not pressed()
        store.settle([Settlement.fail(second, "x")])
        assert pressed()
        with store.group():
            store.claim()
        assert pressed()

    def test_every_write_begins_by_taking_the_write_lock(self, store):
        begun = []
        store._db._connection.set_trace_callback(
            lambda sql: begun.append(sql) if sql.startswith("BEGIN") else None
        )
        store.enqueue(["key"])
        store.complete(*store.claim())
        store.heartbeat()
        assert begun == ["BEGIN IMMEDIATE"] * 4

    def test_no_query_is_written_but_never_used(self):
        folder = Path(opening.__file__).parent
        code = "".join(file.read_text() for file in folder.glob("*.py"))
        notes = {"beat", "stop", "end"}
        unused = {name for name in named_queries("sqlite") if f'"{name}"' not in code} - notes
        assert unused == set()

    def test_no_query_reads_a_whole_table_of_keys(self, path, store):
        scanned = []
        with closing(sqlite3.connect(path)) as connection:
            for name, sql in named_queries("sqlite").items():
                if name in ("schema", "first_counts"):
                    continue
                plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", _blanks(sql)).fetchall()
                steps = [step[3] for step in plan]
                for table in ("keys", "ready", "suspects", "busy", "done", "dead", "items"):
                    scanned += [(name, step) for step in steps if step == f"SCAN {table}"]
        assert scanned == []


def _blanks(sql):
    class Blank(dict):
        def __missing__(self, name):
            return 0

    return [0] * sql.count("?") if "?" in sql else Blank()


class TestWhileInUse:
    def test_a_deleted_database_is_told_and_not_made_anew(self, path, store):
        store.enqueue(["key"])
        path.unlink()
        for call in (store.claim, store.counts):
            with pytest.raises(StoreUnavailableError, match="deleted"):
                call()
        assert not path.exists()

    def test_a_replaced_database_is_told_and_not_touched(self, path, store, tmp_path):
        store.enqueue(["key"])
        other = tmp_path / "other"
        other.write_bytes(b"something else")
        other.replace(path)
        with pytest.raises(StoreUnavailableError, match="replaced"):
            store.claim()
        assert path.read_bytes() == b"something else"

    def test_a_reader_tells_it_too(self, path, store):
        with SQLiteWorkStore(path, readonly=True) as reader:
            path.unlink()
            with pytest.raises(StoreUnavailableError, match="deleted"):
                reader.counts()

    def test_a_damaged_database_is_told(self, path):
        with SQLiteWorkStore(path, ALONE) as store:
            store.enqueue(str(n) for n in range(2000))
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * (path.stat().st_size - 4096))
        with pytest.raises(StoreUnavailableError, match=r"malformed.*damaged"):
            SQLiteWorkStore(path, ALONE).claim()


def test_every_refusal_is_one_of_ours(tmp_path):
    for folder in (tmp_path, tmp_path / "no", "/proc", "/sys"):
        with pytest.raises(HexShardError):
            SQLiteWorkStore(f"{folder}/x/crawl.sqlite3", ALONE)
