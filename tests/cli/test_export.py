from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from scrapy_hexshard import ShardSpec, open_store
from scrapy_hexshard.cli import main
from scrapy_hexshard.store.contract import Settlement

COMMAND = [sys.executable, "-m", "scrapy_hexshard", "export"]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "out" / "items.jsonl"


@pytest.fixture
def store(tmp_path: Path, target: Path) -> Path:
    target.parent.mkdir()
    return tmp_path / "crawl.sqlite3"


def crawl(path: Path, items: list[str]) -> list[str]:
    """Store *items*, three to a key; returns them in the order of completion."""
    with open_store(str(path), ShardSpec(0, 1)) as store:
        store.enqueue(str(number) for number in range(0, len(items), 3))
        store.settle(
            [
                Settlement.complete(claim, items=items[int(claim) : int(claim) + 3])
                for claim in reversed(store.claim(len(items)))
            ]
        )
        return list(store.item_lines())


def numbered(count: int, padding: str = "") -> list[str]:
    return [json.dumps({"number": number, "padding": padding}) for number in range(count)]


def test_each_line_of_the_file_is_an_item(store: Path, target: Path) -> None:
    items = crawl(store, numbered(1_000))

    result = subprocess.run([*COMMAND, store, target], capture_output=True, text=True, check=False)

    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr == f"1,000 items written to {target}.\n"
    lines = target.read_text().splitlines()
    assert lines == items
    assert sorted(json.loads(line)["number"] for line in lines) == list(range(1_000))
    assert list(target.parent.iterdir()) == [target]


def test_stdout_gets_the_items_and_nothing_else(store: Path) -> None:
    items = crawl(store, ['{"name": "Tee, grün"}', '{"name": "\\u2028"}'])

    result = subprocess.run(
        [*COMMAND, store, "-"],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )

    assert result.returncode == 0
    assert result.stdout.decode() == "".join(f"{item}\n" for item in items)
    assert result.stderr == b"2 items written to stdout.\n"


def test_an_item_that_was_stored_on_several_lines_is_written_on_one(
    store: Path, target: Path
) -> None:
    item = {"name": "a\nb", "tags": ["x", "y"]}
    crawl(store, [json.dumps(item, indent=2).replace("\n", "\r\n")])

    assert main(["export", str(store), str(target)]) == 0

    assert [json.loads(line) for line in target.read_bytes().splitlines()] == [item]


def test_an_older_export_is_replaced_and_keeps_its_mode(store: Path, target: Path) -> None:
    items = crawl(store, numbered(2))
    target.write_text("old\n" * 1_000)
    target.chmod(0o640)

    assert main(["export", str(store), str(target)]) == 0

    assert target.read_text().splitlines() == items
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_the_file_a_link_points_to_is_replaced(store: Path, target: Path) -> None:
    items = crawl(store, numbered(2))
    target.write_text("old\n")
    link = target.with_name("latest.jsonl")
    link.symlink_to(target.name)

    assert main(["export", str(store), str(link)]) == 0

    assert link.is_symlink()
    assert target.read_text().splitlines() == items


def test_a_pipe_is_written_to_as_it_is(store: Path, target: Path) -> None:
    items = crawl(store, numbered(2))

    result = subprocess.run(
        ["/bin/sh", "-c", '"$@" /dev/stdout | cat', "sh", *COMMAND, store],
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.stdout.splitlines() == items
    assert not list(target.parent.iterdir())


def test_a_crawl_without_items_gives_an_empty_file_and_a_hint(
    store: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crawl(store, [])

    assert main(["export", str(store), str(target)]) == 0

    assert target.read_text() == ""
    err = capsys.readouterr().err
    assert err.startswith(f"0 items written to {target}.\n")
    assert "HEXSHARD_ITEMS" in err


def test_a_reader_that_leaves_early_ends_the_export_quietly(store: Path) -> None:
    crawl(store, numbered(30_000))

    with subprocess.Popen(
        [*COMMAND, store, "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as export:
        assert export.stdout
        assert export.stderr
        assert json.loads(export.stdout.readline())
        export.stdout.close()

        assert export.stderr.read() == b""
        assert export.wait(60) == 141


# The real export, but for a stop half-way at which its items wait for stdin.
PAUSED = """
import sys
from scrapy_hexshard.cli import main
from scrapy_hexshard.store.sqlite import SQLiteWorkStore

whole = SQLiteWorkStore.item_lines

def paused(store):
    for number, line in enumerate(whole(store)):
        if number == 500:
            print("half", flush=True)
            sys.stdin.read()
        yield line

SQLiteWorkStore.item_lines = paused
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        (signal.SIGTERM, 143),
        (signal.SIGHUP, 129),
        (signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_an_export_that_is_stopped_leaves_the_older_file_alone(
    store: Path, target: Path, number: signal.Signals, code: int
) -> None:
    crawl(store, numbered(1_000, "x" * 100))
    target.write_text("old\n")

    with subprocess.Popen(
        [sys.executable, "-c", PAUSED, "export", store, target],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as export:
        assert export.stdout
        assert export.stderr
        assert export.stdout.readline() == b"half\n"
        assert any(file.stat().st_size > 10_000 for file in target.parent.iterdir())
        export.send_signal(number)
        assert export.wait(60) == code
        assert export.stderr.read() == b""

    assert target.read_text() == "old\n"
    if number != signal.SIGKILL:
        assert list(target.parent.iterdir()) == [target]


def test_closed_stdout_is_a_sentence(store: Path) -> None:
    crawl(store, numbered(3))

    result = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, store, "-"], capture_output=True, text=True
    )

    assert result.returncode == 2
    assert result.stderr == "hexdigest-shard: Cannot write to stdout: it is closed.\n"


def test_a_full_disk_is_a_sentence(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crawl(store, numbered(10))

    assert main(["export", str(store), "/dev/full"]) == 2

    assert capsys.readouterr().err.endswith("Cannot write /dev/full: No space left on device.\n")


@pytest.mark.parametrize("name", [".", "missing/items.jsonl"])
def test_a_place_that_cannot_be_written_to_is_a_sentence(
    store: Path, target: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    crawl(store, numbered(10))

    assert main(["export", str(store), f"{target.parent}/{name}"]) == 2

    assert capsys.readouterr().err.count("\n") == 1
    assert not list(target.parent.iterdir())


def test_a_database_is_never_replaced(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    items = crawl(store, numbered(10))

    assert main(["export", str(store), str(store)]) == 2

    assert "is a database" in capsys.readouterr().err
    with open_store(str(store), readonly=True) as opened:
        assert list(opened.item_lines()) == items


def test_a_missing_store_is_a_sentence_and_makes_no_file(
    store: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target.write_text("old\n")

    assert main(["export", str(store), str(target)]) == 2

    assert str(store) in capsys.readouterr().err
    assert target.read_text() == "old\n"
    assert not store.exists()


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["export", "--help"])

    assert end.value.code == 0
    assert "hexdigest-shard export crawl.sqlite3 items.jsonl" in capsys.readouterr().out
