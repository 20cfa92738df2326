"""What ``load`` makes of CSV, JSON lines, compressed and broken lists."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from scrapy_hexshard import Claim, ShardSpec, StoreUnavailableError, open_store
from scrapy_hexshard.cli import main

COMMAND = [sys.executable, "-m", "scrapy_hexshard", "load"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "crawl.sqlite3"


class Load:
    """``load`` into one store of one shard, and what came of it."""

    def __init__(self, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.store, self._capsys = store, capsys

    def __call__(self, *words: str | Path) -> int:
        code = main(["load", str(self.store), *map(str, words), "--shards", "1"])
        captured = self._capsys.readouterr()
        self.out, self.err = captured.out, captured.err.splitlines()
        return code

    def claims(self) -> list[Claim]:
        with open_store(str(self.store), ShardSpec(0, 1)) as opened:
            return opened.claim(100_000)

    def payloads(self) -> dict[str, Any]:
        return {str(claim): claim.payload and json.loads(claim.payload) for claim in self.claims()}


@pytest.fixture
def load(store: Path, capsys: pytest.CaptureFixture[str]) -> Load:
    return Load(store, capsys)


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


PRODUCTS_CSV = """\
sku,url,meta,rank
A-1,https://shop.example/1,"{""country"": ""pt""}",5
A-2,https://shop.example/2,,
A-3,https://shop.example/3,[1],-7
"""
PRODUCTS_JSONL = """\
{"sku": "A-1", "url": "https://shop.example/1", "meta": {"country": "pt"}, "rank": 5}
{"sku": "A-2", "url": "https://shop.example/2", "meta": null, "rank": null}

{"sku": "A-3", "url": "https://shop.example/3", "meta": [1], "rank": "-7"}
"""
PRODUCTS = [
    pytest.param(name, text, id=name)
    for suffix, text in [("csv", PRODUCTS_CSV), ("jsonl", PRODUCTS_JSONL), ("jl", PRODUCTS_JSONL)]
    for name in [f"products.{suffix}", f"PRODUCTS.{suffix.upper()}", f"products.{suffix}.gz"]
]


@pytest.mark.parametrize(("name", "text"), PRODUCTS)
def test_the_format_follows_from_the_suffix_and_the_key_is_in_the_field_url(
    load: Load, tmp_path: Path, name: str, text: str
) -> None:
    assert load(written(tmp_path, name, text)) == 0

    assert load.out == "3 added, 0 known, 0 invalid.\n"
    assert load.err == []
    assert load.payloads() == {f"https://shop.example/{number}": None for number in (1, 2, 3)}


@pytest.mark.parametrize(("name", "text"), PRODUCTS)
def test_payload_and_priority_come_from_their_fields(
    load: Load, tmp_path: Path, name: str, text: str
) -> None:
    words = ["--field", "sku", "--payload-field", "meta", "--priority", "rank"]

    assert load(written(tmp_path, name, text), *words) == 0

    assert [(str(claim), claim.payload, claim.priority) for claim in load.claims()] == [
        ("A-1", '{"country": "pt"}' if "csv" in name.lower() else '{"country":"pt"}', 5),
        ("A-2", None, 0),
        ("A-3", "[1]", -7),
    ]


@pytest.mark.parametrize("name", ["list", "list.gz"])
@pytest.mark.parametrize(("form", "text"), [("csv", PRODUCTS_CSV), ("jsonl", PRODUCTS_JSONL)])
def test_a_format_that_is_named_wins_over_the_suffix_also_on_stdin(
    store: Path, tmp_path: Path, form: str, text: str, name: str
) -> None:
    listed = written(tmp_path, name, text)
    with listed.open("rb") as stdin:
        result = subprocess.run(
            [*COMMAND, store, "-", "--format", form, "--field", "sku", "--shards", "1"],
            stdin=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "3 added, 0 known, 0 invalid.\n"


def test_an_id_is_the_key_and_its_whole_record_the_payload(load: Load, tmp_path: Path) -> None:
    record = '{"sku": 17, "price": 0.10000000000000000001}'
    table = written(tmp_path, "a.csv", "sku,url,name\nA-1,https://shop.example/1,Kännchen\n")
    feed = written(tmp_path, "b.jsonl", f" {record} \n")

    assert load(table, feed, "--id-field", "sku") == 0

    row, same = load.claims()
    assert row.payload
    fields = {"sku": "A-1", "url": "https://shop.example/1", "name": "Kännchen"}
    assert json.loads(row.payload) == fields
    assert (str(same), same.payload) == ("17", record)  # digit by digit


def test_the_whole_record_may_be_the_payload_of_a_url(load: Load, tmp_path: Path) -> None:
    text = '{"url": "https://shop.example/1", "price": 1.10}'

    assert load(written(tmp_path, "a.jsonl", text), "--payload-field", ".") == 0

    assert [claim.payload for claim in load.claims()] == [text]


def test_an_id_with_a_payload_field_and_a_url_that_is_checked(load: Load, tmp_path: Path) -> None:
    text = "sku,link,meta\nA-1,https://shop.example/1,{}\nA-2,,{}\nA-3,http://a:99999/,{}\n"
    text += "A-4,shop.example/4,{}\n"
    words = ["--id-field", "sku", "--field", "link", "--payload-field", "meta"]

    assert load(written(tmp_path, "a.csv", text), *words) == 0

    assert load.payloads() == {"A-1": {}}
    assert "a.csv:3: 'link' is empty." in load.err[0]
    assert "a.csv:4: Not a valid URL" in load.err[1]
    assert "a.csv:5: 'link' holds no URL but 'shop.example/4'" in load.err[2]


def test_several_formats_are_read_in_one_go(load: Load, tmp_path: Path) -> None:
    files = [
        written(tmp_path, "a.txt", "https://shop.example/1\n"),
        written(tmp_path, "b.csv.gz", "url\nhttps://shop.example/2\nhttps://shop.example/1\n"),
        written(tmp_path, "c.jsonl", '{"url": "https://shop.example/3"}\n'),
    ]

    assert load(*files) == 0

    assert load.out == "3 added, 1 known, 0 invalid.\n"


# What is wrong with a record.


def reasons(err: list[str]) -> dict[int, str]:
    """The reason for each line that is named on stderr."""
    places = [line.split(":", 2) for line in err if line.startswith("/")]
    return {int(number): reason.strip() for _, number, reason in places}


def test_rows_keep_their_line_numbers_whatever_their_cells_hold(load: Load, tmp_path: Path) -> None:
    text = (
        b"\xef\xbb\xbf url ,name\r\n"  # 1
        b'https://shop.example/1,"two\r\nlines"\r\n'  # 2 and 3
        b"\r\n"  # 4
        b"https://shop.example/2\r\n"  # 5
        b"https://shop.example/3,a,b\r\n"  # 6
        b'"https://shop.example/\n4",a\r\n'  # 7 and 8
        b'"https://shop.example/5"x,a\r\n'  # 9
        b',"\n"\r\n'  # 10 and 11
        b"https://shop.example/6,caf\xe9\r\n"  # 12
        b'"https://shop.example/7, ""quoted""","a"\r\n'  # 13
        b'https://shop.example/8,"never\r\nclosed\r\n'  # 14 and 15
    )

    assert load(written(tmp_path, "a.csv", text)) == 0

    assert load.out == "2 added, 0 known, 7 invalid.\n"
    assert reasons(load.err) == {
        5: "1 cells, where the header has 2.",
        6: "3 cells, where the header has 2.",
        7: r"'url' has '\n' inside it.",
        9: "Not CSV: ',' expected after '\"'.",
        10: "'url' is empty.",
        12: "Not UTF-8 text: byte 27 is 0xe9.",
        14: "Not CSV: a quote is not closed before the end (lines 14 to 15).",
    }
    assert load.err[-1] == "Warning: 7 records were not valid and left out."
    assert set(load.payloads()) == {
        "https://shop.example/1",
        "https://shop.example/7,%20%22quoted%22",
    }


def test_objects_are_told_from_what_is_none(load: Load, tmp_path: Path) -> None:
    lines = [
        b'\xef\xbb\xbf{"url": "https://shop.example/1"}',
        b'{"url": "https://shop.example/2"',
        b'["https://shop.example/3"]',
        b"17",
        b'{"link": "https://user:s3cret@shop.example/4"}',
        b'{"url": null}',
        b'{"url": true}',
        b'{"url": "caf\xe9"}',
        b'{"url": "https://shop.example/9", "price": NaN}',
        b'{"url": "\\ud800"}',
    ]

    assert load(written(tmp_path, "a.jsonl", b"\n".join(lines))) == 0

    assert load.out == "1 added, 0 known, 9 invalid.\n"
    assert reasons(load.err) == {
        2: "Not JSON: Expecting ',' delimiter at character 33.",
        3: "A line is one JSON object, not a list.",
        4: "A line is one JSON object, not a number.",
        5: "No field 'url'; there are: 'link'.",
        6: "'url' is not text but null.",
        7: "'url' is not text but true or false.",
        8: "Not UTF-8 text: byte 13 is 0xe9.",
        9: "Not JSON that can be read: NaN is no JSON number.",
        10: r"Not valid Unicode (a lone surrogate): '\ud800'. Decode the input as UTF-8.",
    }


def test_a_payload_or_priority_that_is_none_is_rejected(load: Load, tmp_path: Path) -> None:
    words = ["--payload-field", "meta", "--priority", "rank"]
    rows = ["a.example/,{,1", "b.example/,{},1.5", "c.example/,{},99999999999"]
    rows += ["d.example/,NaN,", "e.example/,{},+3"]
    table = "\nhttps://".join(["url,meta,rank", *rows])
    assert load(written(tmp_path, "a.csv", table), *words) == 0
    assert list(reasons(load.err)) == [2, 3, 4, 5]
    assert "payload" in reasons(load.err)[2]
    assert reasons(load.err)[3] == "'rank' is not a whole number but '1.5'."
    assert "NaN is not JSON" in reasons(load.err)[5]

    large = json.dumps({"url": "https://f.example/", "meta": "x" * 1_000_001, "rank": 1})
    lines = [large, '{"url": "https://g.example/", "meta": 1, "rank": 2.0}']
    assert load(written(tmp_path, "b.jsonl", "\n".join(lines)), *words) == 0
    assert "1000003 bytes" in reasons(load.err)[1]
    assert reasons(load.err)[2] == "'rank' is not a whole number but a number with a fraction."
    assert [(str(claim), claim.priority) for claim in load.claims()] == [("https://e.example/", 3)]


def test_a_record_that_never_ends_costs_no_other_its_place(load: Load, tmp_path: Path) -> None:
    rows = "".join(f"https://shop.example/{number:07},\n" for number in range(60_000))
    opened = f'url,name\nhttps://shop.example/a,"open\n{rows}'
    feed = '{"url": "https://shop.example/b", "x": "' + "x" * 9_000_000 + '"}\n'

    assert load(written(tmp_path, "a.csv", opened), written(tmp_path, "b.jsonl", feed)) == 0

    place, _, reason = load.err[0].partition(":2: ")
    assert place.endswith("a.csv")
    assert reason.startswith("Not CSV: field larger than field limit (1000000) (lines 2 to ")
    last = int(reason.rpartition(" ")[2].rstrip(")."))
    # What came after the end that was given up on was read: all lines but those named.
    assert load.out == f"{60_002 - last:,} added, 0 known, 2 invalid.\n"
    assert load.err[1].endswith("b.jsonl:1: A line has at most 8,000,000 bytes.")


# What is wrong with an input.


@pytest.mark.parametrize(
    ("text", "words", "sentence"),
    [
        ("sku,link\n1,2\n", [], "There is no column 'url' in {}; its columns are: 'sku', 'link'."),
        ("url\n1\n", ["--priority", "rank"], "There is no column 'rank' in {}"),
        ("url\n1\n", ["--id-field", "sku"], "There is no column 'sku' in {}"),
        ("url,url\n1,2\n", [], "The column 'url' is in the header of {} twice."),
        ("sku,a,a\n1,2,3\n", ["--id-field", "sku"], "The column 'a' is in the header of {} twice."),
        ("", [], "{} is empty"),
        (b"\xff\xfeu\0r\0l\0", [], "{} is UTF-16 text: convert it to UTF-8."),
        (b"caf\xe9,url\n", [], "The header of {} is not UTF-8 text"),
        ('"url\n1\n', [], "{} has no header. Not CSV: a quote is not closed"),
        (
            "https://user:s3cret@shop.example/1\n",
            [],
            "There is no column 'url' in {}; its columns are: 'https://***@shop.example/1'.",
        ),
    ],
)
@pytest.mark.parametrize("piped", [False, True])
def test_a_header_that_does_not_fit_changes_nothing(
    store: Path, tmp_path: Path, text: str | bytes, words: list[str], sentence: str, piped: bool
) -> None:
    good = written(tmp_path, "good.jsonl", '{"url": "a", "sku": "a", "rank": 1}\n')
    bad = written(tmp_path, "bad.csv", text)
    with bad.open("rb") as stdin:
        inputs = ["-", "--format", "csv"] if piped else [good, bad]
        result = subprocess.run(
            [*COMMAND, store, *inputs, *words, "--shards", "1"],
            stdin=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    assert result.returncode == 2
    assert result.stdout == ""
    assert sentence.format("-" if piped else bad) in result.stderr
    assert result.stderr.count("\n") == 1
    assert not store.exists()


def test_options_that_the_format_does_not_have_are_refused(load: Load, tmp_path: Path) -> None:
    assert load(written(tmp_path, "a.txt", "a\n"), "--id-field", "sku") == 2
    assert "--id-field is for CSV and JSON lines" in load.err[0]
    assert load(written(tmp_path, "a.json", "[]")) == 2
    assert "--format jsonl" in load.err[0]
    assert not load.store.exists()


def test_of_a_compressed_list_that_is_cut_short_all_that_is_there_is_loaded(
    load: Load, tmp_path: Path
) -> None:
    urls = [f"https://shop.example/products/{os.urandom(8).hex()}" for _ in range(20_000)]
    whole = gzip.compress("".join(f"{url}\n" for url in urls).encode())
    listed = tmp_path / "urls.txt.gz"
    listed.write_bytes(whole[: len(whole) // 2])

    assert load(listed) == 2

    keys = {str(claim) for claim in load.claims()}
    assert 8_000 < len(keys) < 12_000
    assert keys == set(urls[: len(keys)])  # none of them cut
    assert load.out == f"{len(keys):,} added, 0 known, 0 invalid.\n"
    place = f"The compressed file {listed} is cut short after line {len(keys)}."
    assert load.err == [
        f"hexdigest-shard: {place} Give a whole copy of it. What was read before stays."
    ]
    listed.write_bytes(whole)
    assert load(listed) == 0
    assert load.out == f"{20_000 - len(keys):,} added, {len(keys):,} known, 0 invalid.\n"


@pytest.mark.parametrize("damage", ["garbage behind", "checksum", "middle"])
def test_damage_to_a_compressed_list_is_said_in_a_sentence(
    load: Load, tmp_path: Path, damage: str
) -> None:
    data = bytearray(gzip.compress(b"".join(b"%d\n" % number for number in range(20_000))))
    if damage == "garbage behind":
        data += b"garbage"
    elif damage == "checksum":
        data[-8] ^= 1
    else:
        data[len(data) // 2 : len(data) // 2 + 64] = b"\xff" * 64
    listed = tmp_path / "ids.csv.gz"
    listed.write_bytes(data)

    assert load(listed, "--field", "0") == 2

    assert f"The compressed file {listed} is damaged after line " in load.err[-1]
    if damage != "middle":
        assert load.out == "19,999 added, 0 known, 0 invalid.\n"


# Rejected records.


def test_all_rejected_records_are_in_the_file_and_strict_says_so(
    store: Path, tmp_path: Path
) -> None:
    bad = [f"https://user:s3cret@h{number}.example:99999/" for number in range(50)]
    table = written(tmp_path, "a.csv", "\n".join(["url", "https://shop.example/1", *bad]))
    lines = written(tmp_path, "b.txt", "x\ty\n")
    rejected = tmp_path / "rejected.jsonl"
    rejected.write_text("of an earlier load\n")

    result = subprocess.run(
        [*COMMAND, store, table, lines, "--shards", "1", "--strict", "--reject-file", rejected],
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 1
    assert result.stdout == "1 added, 0 known, 51 invalid.\n"
    said = result.stderr.splitlines()
    assert said[10] == f"... and 41 more. All of them are in {rejected}."
    assert said[-1] == "Exit code 1, as --strict was given. What was added stays."
    records = [json.loads(line) for line in rejected.read_text().splitlines()]
    places = [(record["file"], record["line"]) for record in records]
    assert places == [*[(str(table), number) for number in range(3, 53)], (str(lines), 1)]
    assert "impossible host or port" in records[0]["reason"]
    assert "s3cret" not in rejected.read_text() + result.stderr


def test_strict_without_a_rejected_record_is_success(load: Load, tmp_path: Path) -> None:
    rejected = tmp_path / "rejected.jsonl"

    assert load(written(tmp_path, "a.txt", "a\n"), "--strict", "--reject-file", rejected) == 0

    assert rejected.read_text() == ""
    assert load.err == []


@pytest.mark.parametrize("place", ["input", "store", "no folder"])
def test_a_reject_file_that_would_cost_something_is_refused(
    load: Load, tmp_path: Path, place: str
) -> None:
    listed = written(tmp_path, "a.txt", "a\n")
    assert load(listed) == 0
    before = load.store.read_bytes()
    path = {"input": listed, "store": load.store, "no folder": tmp_path / "no" / "file"}[place]

    assert load(listed, "--reject-file", path) == 2

    assert str(path) in load.err[0]
    assert listed.read_text() == "a\n"
    assert load.store.read_bytes() == before


# Others and interruptions.


def test_keys_that_others_store_meanwhile_are_said_to_be_in_the_numbers(tmp_path: Path) -> None:
    store, pipe = tmp_path / "crawl.sqlite3", tmp_path / "urls"
    os.mkfifo(pipe)
    with subprocess.Popen(
        [*COMMAND, store, pipe, "--shards", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as load:
        with pipe.open("wb") as feed:
            feed.write(b"".join(b"%d\n" % number for number in range(5_000)))
            feed.flush()
            wait_for(lambda: keys_in(store) == 5_000)
            with open_store(str(store), 2) as other:
                other.enqueue(["another"])
        out, err = load.communicate(timeout=60)

    assert out.startswith("5,000 added, 0 known, 0 invalid.\nAdded by shard: 0: ")
    assert err == "Others stored keys at the same time; the numbers by shard count those.\n"


def test_an_interrupted_load_of_csv_goes_on_when_it_is_given_again(tmp_path: Path) -> None:
    store = tmp_path / "crawl.sqlite3"
    rows = b"".join(b"A-%d,https://shop.example/%d\n" % (number, number) for number in range(7_000))
    with subprocess.Popen(
        [*COMMAND, store, "-", "--format", "csv", "--id-field", "sku", "--shards", "4"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as load:
        assert load.stdin
        load.stdin.write(b"sku,url\n" + rows)
        load.stdin.flush()
        wait_for(lambda: keys_in(store))
        load.send_signal(signal.SIGINT)
        assert load.wait(60) == 130  # its stdin stays open
        assert load.stdout
        assert load.stdout.read().startswith(b"5,000 added, 0 known, 0 invalid.\nAdded by shard: ")
    listed = written(tmp_path, "a.csv", b"sku,url\n" + rows)
    again = subprocess.run(
        [*COMMAND, store, listed, "--id-field", "sku"], capture_output=True, text=True, check=False
    )
    assert again.stdout.startswith("2,000 added, 5,000 known, 0 invalid.\n")


def test_an_interruption_before_anything_was_read_is_no_traceback(tmp_path: Path) -> None:
    store = tmp_path / "crawl.sqlite3"
    with subprocess.Popen(
        [*COMMAND, store, "-", "--shards", "4"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as load:
        wait_for(store.exists)
        load.send_signal(signal.SIGINT)
        assert load.wait(60) == 130
        assert load.stderr
        assert "Traceback" not in load.stderr.read()


def keys_in(store: Path) -> int:
    if not store.exists():
        return 0
    with suppress(StoreUnavailableError), open_store(str(store), readonly=True) as opened:
        return sum(opened.counts(all_shards=True).values())
    return 0  # it is only just being made


def wait_for(condition: Any) -> None:
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.05)


MEASURED = """
import sys
from scrapy_hexshard.cli import main
code = main(sys.argv[1:])
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
sys.exit(code)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_memory_does_not_grow_with_the_number_of_records(tmp_path: Path, form: str) -> None:
    def peak(rounds: int) -> int:
        store = tmp_path / f"{rounds}.sqlite3"
        words = ["load", str(store), "-", "--format", form, "--id-field", "sku", "--shards", "4"]
        with subprocess.Popen(
            [sys.executable, "-c", MEASURED, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as load:
            assert load.stdin
            feeding = threading.Thread(target=feed, args=(load.stdin, rounds))
            feeding.start()
            assert load.stdout
            most = int(load.stdout.read().split()[-1]) * 1024
            feeding.join(60)
            assert load.wait(60) == 0
            return most

    def feed(stdin: Any, rounds: int) -> None:
        if form == "csv":
            stdin.write(b"sku,url\n")
        row = b"%d,https://shop.example/%d\n" if form == "csv" else b'{"sku": %d, "n": %d}\n'
        # The same keys over and over: the store's own cache is as full after the first round.
        block = b"".join(row % (number, number) for number in range(10_000))
        for _ in range(rounds):
            stdin.write(block)
        stdin.close()

    assert peak(12) < peak(1) + 10_000_000
