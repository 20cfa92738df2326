"""``hexdigest-shard plan``: rows by shard and by host, before anything is stored."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scrapy_hexshard import canonical_key, stable_owner
from scrapy_hexshard.cli import main
from scrapy_hexshard.cli.plan import IDS, Forecast, host_of

COMMAND = [sys.executable, "-m", "scrapy_hexshard", "plan"]


def test_rows_are_counted_by_shard_and_by_host_and_nothing_is_made(tmp_path: Path) -> None:
    urls = [f"https://shop{number % 3}.example:8080/{number}" for number in range(1_000)]
    keys = [*urls, *urls[:10], "A-1", "A-2"]
    listed = tmp_path / "urls.txt"
    listed.write_text("\n".join([*keys, "http://user:s3cret@h:99999/"]))

    result = subprocess.run(
        [*COMMAND, listed, "--shards", "3"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )

    lines = [line.split() for line in result.stdout.splitlines()]
    assert result.stdout.startswith("1,012 rows, 1 invalid; 1,002 different keys, 10 repeats.\n")
    assert ["shard", "rows", "keys"] in lines
    for shard in range(3):
        rows = sum(stable_owner(key, 3) == shard for key in keys)
        different = sum(stable_owner(key, 3) == shard for key in set(keys))
        assert [str(shard), str(rows), str(different)] in lines
    assert lines[-4:] == [
        ["338", "shop0.example"],
        ["336", "shop1.example"],
        ["336", "shop2.example"],
        ["2", "(ids)"],
    ]
    assert f"{listed}:1013: Not a valid URL" in result.stderr
    assert "s3cret" not in result.stderr
    assert list(tmp_path.iterdir()) == [listed]


def test_the_document_says_what_load_would_add(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "a.csv"
    rows = [f"A-{number},https://h{number % 25:02}.example/{number}" for number in range(100)]
    table.write_text("\n".join(["sku,link", *rows, "A-100", "A-0,https://h00.example/0"]))

    assert main(["plan", str(table), "--field", "link", "--shards", "4", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    store = tmp_path / "crawl.sqlite3"
    assert main(["load", str(store), str(table), "--field", "link", "--shards", "4"]) == 0
    added = capsys.readouterr().out.splitlines()[1]

    counts = [f"{row['shard']}: {row['keys']}" for row in document["shards"]]
    assert added == f"Added by shard: {', '.join(counts)}."
    assert (document["rows"], document["keys"], document["invalid"]) == (101, 100, 1)
    assert document["hosts"][0] == {"host": "h00.example", "rows": 5}
    assert len(document["hosts"]) == 20
    assert document["other_rows"] == 20
    assert document["schema"] == 1


def test_hosts_and_shards_beyond_those_shown_are_folded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = tmp_path / "urls.txt"
    listed.write_text("\n".join(f"https://h{number:02}.example/" for number in range(25)))

    assert main(["plan", str(listed), "--shards", "100"]) == 0

    out = capsys.readouterr().out
    assert "\n                 5  (5 other hosts)\n" in out
    assert "\n... and 36 more shards, see --json.\nRows from 0 (shard " in out
    assert out.count("\n   ") < 100


def test_beyond_the_limits_rows_are_counted_and_no_keys() -> None:
    forecast = Forecast(2, max_keys=3, max_hosts=2)
    keys = [canonical_key(f"https://{host}.example/{n}") for n in range(2) for host in "abc"]

    for key in [*keys[:3], keys[0]]:
        forecast.add(key)
    assert forecast.keys
    assert sum(forecast.keys) == 3
    forecast.add(keys[3])
    assert forecast.keys is None
    for key in keys[4:]:
        forecast.add(key)

    assert sum(forecast.rows) == 7
    assert forecast.top_hosts == [("a.example", 3), ("b.example", 2)]
    assert (forecast.other_rows, forecast.uncounted) == (2, 2)


@pytest.mark.parametrize(
    ("key", "host"),
    [
        ("https://shop.example:8080/p?u=http://other.example/", "shop.example"),
        ("http://[::1]:8000/", "::1"),
        (f"POST https://api.example/ {'0' * 64}", "api.example"),
        ("A-1", IDS),
        ("tea pot", IDS),
        ("data:,x", IDS),
        ("file:///tmp/a", IDS),
    ],
)
def test_the_host_of_a_key(key: str, host: str) -> None:
    assert host_of(canonical_key(key)) == host


def test_an_input_that_does_not_fit_is_said_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "a.csv"
    table.write_text("sku\nA-1\n")

    assert main(["plan", str(table), "--shards", "4"]) == 2

    assert "There is no column 'url'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [table]


def test_lines_that_lack_their_scheme_are_said_once_with_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = tmp_path / "urls.txt"
    listed.write_text("https://a.example/\nwww.a.example/b\nA-1\na.example/c\n")

    assert main(["plan", str(listed), "--shards", "4"]) == 0

    assert capsys.readouterr().err == (
        f"Warning: 2 lines look like a URL without https:// and became an id, first {listed}:2. "
        "If it should be a URL, mend the list before you load it.\n"
    )
