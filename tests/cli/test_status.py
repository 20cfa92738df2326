from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scrapy_hexshard import ShardSpec, open_store
from scrapy_hexshard.cli import main
from scrapy_hexshard.store.contract import Settlement

COMMAND = [sys.executable, "-m", "scrapy_hexshard", "status"]
_STYLE = re.compile(r"\x1b\[[\d;]*m")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "crawl.sqlite3"


@pytest.fixture
def crawl(path: Path) -> Path:
    """A crawl of two shards of which the first has keys in every state."""
    with open_store(str(path), ShardSpec(0, 2)) as store:
        store.enqueue(f"https://shop.example/{number}" for number in range(3_000))
        claims = store.claim(200, lease_seconds=3_600)
        store.complete(*claims[:100])
        store.settle(
            [
                *(Settlement.fail(claim, "http 404", permanent=True) for claim in claims[100:140]),
                *(Settlement.fail(claim, "robots", permanent=True) for claim in claims[140:190]),
                Settlement.fail(claims[190], "download: TimeoutError", retry_in=3_600),
            ]
        )
    return path


def files(folder: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in folder.iterdir()}


def status(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, path, *options], capture_output=True, text=True, check=False, timeout=60
    )


def test_json_is_one_document_with_totals_shards_and_outcomes(crawl: Path) -> None:
    result = status(crawl, "--json")

    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert list(document)[:3] == ["total", "shards", "outcomes"]
    assert list(document["total"]) == ["pending", "running", "done", "failed", "dead"]
    assert [list(row) for row in document["shards"]] == [["shard", *document["total"]]] * 2
    first, second = document["shards"]
    pending = first.pop("pending")
    assert first == {"shard": 0, "running": 9, "done": 100, "failed": 1, "dead": 90}
    assert second == {"shard": 1, "pending": 3_000 - 200 - pending} | dict.fromkeys(
        ["running", "done", "failed", "dead"], 0
    )
    assert document["total"] == {
        "pending": 2_800,
        "running": 9,
        "done": 100,
        "failed": 1,
        "dead": 90,
    }
    assert list(document["outcomes"].items()) == [("done", 100), ("robots", 50), ("http 404", 40)]


def test_the_table_on_a_pipe_is_plain_text_that_tools_can_split(crawl: Path) -> None:
    result = status(crawl)

    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == f"{crawl}: 3,000 keys on 2 shards, 6.3 % ended"
    rows = [line.split() for line in lines[1:] if line]
    assert rows[0] == ["shard", "pending", "running", "done", "failed", "dead"]
    assert rows[1][0] == "0"
    assert rows[1][2:] == ["9", "100", "1", "90"]
    assert rows[3] == ["total", "2,800", "9", "100", "1", "90"]
    assert rows[4:] == [
        ["keys", "outcome"],
        ["100", "done"],
        ["50", "robots"],
        ["40", "http", "404"],
    ]
    assert result.stdout.isascii()
    assert lines == [line.rstrip() for line in lines]


@pytest.mark.parametrize("columns", [30, 80, 200])
def test_the_table_on_a_terminal_keeps_every_digit_and_outcome(path: Path, columns: int) -> None:
    with open_store(str(path), ShardSpec(0, 1)) as store:
        store.enqueue(f"https://shop.example/{number}" for number in range(12_345))
        store.fail(store.claim(1)[0], "word " * 30, permanent=True)

    lines = [line.split() for line in _STYLE.sub("", on_terminal(path, columns)).splitlines()]

    assert ["0", "12,344", "0", "0", "0", "1"] in lines
    assert ["total", "12,344", "0", "0", "0", "1"] in lines
    assert ["1", "word"] in [line[:2] for line in lines]


def on_terminal(path: Path, columns: int) -> str:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns)}
    with subprocess.Popen(
        [*COMMAND, path], stdin=subprocess.DEVNULL, stdout=theirs, env=environment
    ) as process:
        os.close(theirs)
        shown = b""
        with os.fdopen(ours, "rb", buffering=0) as terminal:
            try:
                while part := terminal.read(4096):
                    shown += part
            except OSError:  # Linux says so when the other end is closed
                pass
        assert process.wait(60) == 0
    return shown.decode().replace("\r\n", "\n")


def test_a_strange_outcome_or_name_sends_nothing_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "\x1b[2J\udcff"
    with open_store(str(path), ShardSpec(0, 1)) as store:
        store.enqueue(["a"])
        store.fail(store.claim()[0], "\x1b[2J[red]\tred[/red]", permanent=True)

    assert main(["status", str(path)]) == 0

    out = capsys.readouterr().out
    assert "[red] red[/red]" in out
    assert "\x1b" not in out
    assert out.replace("\n", "").isprintable()


def test_many_outcomes_are_folded_in_the_table_and_whole_in_json(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(str(path), ShardSpec(0, 1)) as store:
        store.enqueue(str(number) for number in range(30))
        for claim in store.claim():
            store.fail(claim, f"strange {claim}", permanent=True)

    main(["status", str(path)])
    table = capsys.readouterr().out
    main(["status", str(path), "--json"])

    assert table.count("strange ") == 20
    assert "10  10 other outcomes, see --json" in table
    assert len(json.loads(capsys.readouterr().out)["outcomes"]) == 30


def test_status_leaves_the_store_as_it_is(crawl: Path) -> None:
    before = files(crawl.parent)

    assert status(crawl).returncode == 0
    assert status(crawl, "--json").returncode == 0

    assert files(crawl.parent)[crawl.name] == before[crawl.name]


def test_status_answers_while_a_worker_is_inside_a_transaction(path: Path) -> None:
    with open_store(str(path), ShardSpec(0, 1)) as store:
        store.enqueue(["a", "b"])
        with store.group():
            store.claim(1)
            document = json.loads(status(path, "--json").stdout)

    assert document["total"]["pending"] == 2


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_missing_store_is_a_sentence_and_makes_no_file(
    path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", str(path), *options]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert str(path) in err
    assert err.count("\n") == 1
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize("content", [b"", b"https://shop.example/1\n" * 1_000])
def test_a_file_that_is_no_store_is_a_sentence_and_stays_as_it_is(
    path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_bytes(content)

    assert main(["status", str(path)]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert str(path) in err
    assert err.count("\n") == 1
    assert files(path.parent) == {path.name: content}


IMPORTED = """
import sys
from scrapy_hexshard.cli import main
main(sys.argv[1:])
print(*sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


@pytest.mark.parametrize(("options", "draws"), [([], True), (["--json"], False)])
def test_scrapy_is_never_imported_and_rich_only_to_draw(
    crawl: Path, options: list[str], draws: bool
) -> None:
    result = subprocess.run(
        [sys.executable, "-c", IMPORTED, "status", crawl, *options],
        capture_output=True,
        text=True,
        check=True,
    )

    imported = result.stderr.split()
    assert "scrapy_hexshard" in imported
    assert "scrapy" not in imported
    assert "twisted" not in imported
    assert ("rich" in imported) is draws


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["status", "--help"])

    assert end.value.code == 0
    assert "hexdigest-shard status crawl.sqlite3" in capsys.readouterr().out
