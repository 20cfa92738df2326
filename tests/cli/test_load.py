from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from scrapy_hexshard import ShardSpec, open_store
from scrapy_hexshard.cli import main
from scrapy_hexshard.store.contract import ShardCounts

COMMAND = [sys.executable, "-m", "scrapy_hexshard", "load"]
MEGABYTE = 1_000_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "crawl.sqlite3"


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    return tmp_path / "urls.txt"


def url(number: int) -> str:
    return f"https://shop.example/products/{number:08}"


def url_lines(numbers: Iterable[int]) -> bytes:
    return b"".join(f"{url(number)}\n".encode() for number in numbers)


def stored(path: Path) -> int:
    with open_store(str(path), None, readonly=True) as store:
        return sum(store.counts(all_shards=True).values())


def shards_of(path: Path) -> list[ShardCounts]:
    with open_store(str(path), None, readonly=True) as store:
        return store.shard_counts()


def stored_keys(path: Path) -> set[str]:
    """The keys of a store of one shard."""
    with open_store(str(path), ShardSpec(0, 1)) as store:
        return set(store.claim(100_000))


def test_a_list_is_loaded_once_however_often_it_is_given(store: Path, listed: Path) -> None:
    listed.write_bytes(url_lines(range(2_000)))

    first = subprocess.run(
        [*COMMAND, store, listed, "--shards", "4"], capture_output=True, text=True, check=False
    )
    again = subprocess.run([*COMMAND, store, listed], capture_output=True, text=True, check=False)

    assert (first.returncode, first.stderr) == (0, "")
    total, by_shard = first.stdout.splitlines()
    assert total == "2,000 added, 0 known, 0 invalid."
    counts = [sum(shard.counts.values()) for shard in shards_of(store)]
    assert (
        by_shard
        == "Added by shard: "
        + ", ".join(f"{shard}: {count}" for shard, count in enumerate(counts))
        + "."
    )
    assert sum(counts) == 2_000
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout == "0 added, 2,000 known, 0 invalid.\n"
    assert stored(store) == 2_000


def test_stdin_and_files_are_read_in_the_order_given(store: Path, listed: Path) -> None:
    listed.write_text("a\nb\n")
    other = listed.with_name("other.txt")
    other.write_text("d\na")

    result = subprocess.run(
        [*COMMAND, store, listed, "-", other, "--shards", "1"],
        input=b"c\nb\n",
        capture_output=True,
        check=False,
    )

    assert result.stdout.decode() == "4 added, 2 known, 0 invalid.\n"
    with open_store(str(store), ShardSpec(0, 1)) as opened:
        assert opened.claim() == ["a", "b", "c", "d"]


def test_a_pipe_is_read_as_a_file(store: Path, listed: Path) -> None:
    os.mkfifo(listed)
    with subprocess.Popen(
        [*COMMAND, store, listed, "--shards", "1"], stdout=subprocess.PIPE
    ) as load:
        listed.write_bytes(b"a\nb\n")
        assert load.communicate(timeout=60)[0].endswith(b"2 added, 0 known, 0 invalid.\n")


def test_blank_lines_comments_line_ends_and_byte_order_marks_are_no_part_of_a_key(
    store: Path, listed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed.write_bytes(
        b"\xef\xbb\xbfhttps://shop.example/1\r\n"
        b"\r\n  \n# a comment\n  # another\n"
        b" https://SHOP.example:443/1#top \n"
        b"\xef\xbb\xbfhttps://shop.example/2\n"
        b"sku #3"
    )

    assert main(["load", str(store), str(listed), "--shards", "1"]) == 0

    assert capsys.readouterr() == ("3 added, 1 known, 0 invalid.\n", "")
    assert stored_keys(store) == {"https://shop.example/1", "https://shop.example/2", "sku #3"}


def test_a_bad_line_is_named_and_costs_no_other_its_place(
    store: Path, listed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed.write_bytes(
        b"\n".join(
            [
                b"https://shop.example/1",
                b"https://shop.example:99999/",
                b"caf\xe9",
                b"https://shop.example/2\tTea pot",
                b"u\0r\0l\0",
                b"x" * 9_000,
                b"y" * 200_000,
                b"https://shop.example/3",
            ]
        )
    )

    assert main(["load", str(store), str(listed), "--shards", "1"]) == 0

    out, err = capsys.readouterr()
    assert out == "2 added, 0 known, 6 invalid.\n"
    lines = err.splitlines()
    assert [line.removeprefix(f"{listed}:").partition(":")[0] for line in lines[:6]] == list(
        "234567"
    )
    assert "impossible host or port" in lines[0]
    assert "Not UTF-8 text: byte 4 is 0xe9" in lines[1]
    assert "'\\t'" in lines[2]
    assert "'\\x00'" in lines[3]
    assert "UTF-16" in lines[3]
    assert "9000" in lines[4]
    assert lines[6:] == ["Warning: 6 lines were not valid and left out."]
    assert stored_keys(store) == {"https://shop.example/1", "https://shop.example/3"}


def test_bad_lines_are_all_counted_and_the_first_ten_shown(
    store: Path, listed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed.write_bytes(b"\xff\n" * 12_000)

    assert main(["load", str(store), str(listed), "--shards", "1"]) == 0

    out, err = capsys.readouterr()
    assert out == "0 added, 0 known, 12,000 invalid.\n"
    assert err.count(f"{listed}:") == 10
    assert "... and 11,990 more.\nWarning: 12,000 lines were not valid" in err


def test_a_password_in_a_bad_line_is_not_shown(
    store: Path, listed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed.write_text("https://user:s3cret@shop.example:99999/\n")

    main(["load", str(store), str(listed), "--shards", "1"])

    err = capsys.readouterr().err
    assert "not valid" in err
    assert "s3cret" not in err


def test_lines_without_a_scheme_are_stored_as_ids_and_warned_about(
    store: Path, listed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed.write_text("https://shop.example/p/1\nshop.example/p/1\nhttps:///p/2\n")

    assert main(["load", str(store), str(listed), "--shards", "1"]) == 0

    out, err = capsys.readouterr()
    assert out == "3 added, 0 known, 0 invalid.\n"
    assert err == (
        "Warning: 2 lines look like a URL but became an id, as https:// is missing or something "
        f"stands before it, first {listed}:2. "
        "If it should be a URL, mend the list and load it into a new store.\n"
    )
    assert "shop.example/p/1" in stored_keys(store)


@pytest.mark.parametrize("name", ["missing.txt", "."])
def test_an_input_that_cannot_be_read_changes_nothing(
    store: Path,
    listed: Path,
    name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    listed.write_text("a\n")
    bad = f"{listed.parent}/{name}"

    assert main(["load", str(store), str(listed), bad, "--shards", "4"]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert bad in err
    assert err.count("\n") == 1
    assert list(listed.parent.iterdir()) == [listed]


def test_closed_stdin_is_said_in_a_sentence(store: Path) -> None:
    result = subprocess.run(
        ["/bin/sh", "-c", '"$@" <&-', "sh", *COMMAND, store, "-", "--shards", "1"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 2
    assert "Cannot read -: it is closed" in result.stderr
    assert not store.exists()


def test_a_new_store_needs_the_number_of_shards(
    store: Path, listed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed.write_text("a\n")

    assert main(["load", str(store), str(listed)]) == 2

    assert "shards" in capsys.readouterr().err
    assert list(listed.parent.iterdir()) == [listed]


def test_another_number_of_shards_is_refused(
    store: Path, listed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed.write_text("a\n")
    main(["load", str(store), str(listed), "--shards", "4"])
    listed.write_text("b\n")
    capsys.readouterr()

    assert main(["load", str(store), str(listed), "--shards", "5"]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert "4" in err
    assert "5" in err
    assert stored(store) == 1


@pytest.mark.parametrize("shards", ["0", "-1", "99999999"])
def test_an_impossible_number_of_shards_is_refused(
    store: Path, listed: Path, shards: str, capsys: pytest.CaptureFixture[str]
) -> None:
    listed.write_text("a\n")

    assert main(["load", str(store), str(listed), f"--shards={shards}"]) == 2

    assert shards in capsys.readouterr().err
    assert not store.exists()


def test_an_interrupted_load_keeps_what_it_stored_and_goes_on_when_run_again(store: Path) -> None:
    count = 12_000
    with subprocess.Popen(
        [*COMMAND, store, "-", "--shards", "4"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as load:
        assert load.stdin
        load.stdin.write(url_lines(range(count)))
        load.stdin.flush()
        kept = wait_until_stored(store)
        load.send_signal(signal.SIGINT)
        # Its stdin stays open: only the signal can end it.
        assert load.wait(60) == 130
        assert load.stdout
        assert load.stderr
        assert b" added, 0 known, 0 invalid.\n" in load.stdout.read()
        assert load.stderr.read().decode().splitlines() == [
            "Stopped. What was added stays: load again to go on."
        ]

    assert kept <= stored(store) < count
    kept = stored(store)
    again = subprocess.run(
        [*COMMAND, store, "-"], input=url_lines(range(count)), capture_output=True, check=False
    )
    total = again.stdout.decode().splitlines()[0]
    assert total == f"{count - kept:,} added, {kept:,} known, 0 invalid."


def wait_until_stored(path: Path) -> int:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if path.exists() and (keys := stored(path)):
            return keys
        time.sleep(0.05)
    raise TimeoutError(f"nothing was stored in {path}")


MEASURED = """
import sys
from scrapy_hexshard.cli import main
from scrapy_hexshard.store.contract import ShardCounts
code = main(sys.argv[1:])
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
sys.exit(code)
"""


def peak_memory(store: Path, lines: Iterable[bytes]) -> int:
    """The most memory, in bytes, that loading *lines* from stdin took."""
    with subprocess.Popen(
        [sys.executable, "-c", MEASURED, "load", str(store), "-", "--shards", "4"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as load:
        assert load.stdin
        assert load.stdout
        for line in lines:
            load.stdin.write(line)
        load.stdin.close()
        peak = int(load.stdout.read().split()[-1]) * 1024
        assert load.wait(60) == 0
        return peak


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_memory_does_not_grow_with_the_input_or_with_a_line(tmp_path: Path) -> None:
    # The same keys over and over: the store's own cache is as full after the first round.
    block = url_lines(range(10_000))
    least = peak_memory(tmp_path / "short.sqlite3", [block])

    assert peak_memory(tmp_path / "long.sqlite3", [block] * 15) < least + 10 * MEGABYTE
    wide = peak_memory(tmp_path / "wide.sqlite3", [block, *[b"x" * MEGABYTE] * 60, b"\n"])
    assert wide < least + 10 * MEGABYTE


def test_progress_is_shown_on_a_terminal_only(store: Path, listed: Path) -> None:
    listed.write_bytes(url_lines(range(100)))
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, store, listed, "--shards", "4"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    ) as load:
        os.close(theirs)
        shown = read_terminal(ours)
        assert load.stdout
        assert load.stdout.read().startswith(b"100 added, 0 known, 0 invalid.\n")
        assert load.wait(60) == 0
    assert b"Loading: 100 added" in shown

    piped = subprocess.run(
        [*COMMAND, store, listed],
        capture_output=True,
        check=False,
        env={**os.environ, "FORCE_COLOR": "1"},
    )
    assert piped.stderr == b""


def read_terminal(descriptor: int) -> bytes:
    shown = b""
    with os.fdopen(descriptor, "rb", buffering=0) as terminal:
        try:
            while part := terminal.read(4096):
                shown += part
        except OSError:  # Linux says so when the other end is closed
            pass
    return shown


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["load", "--help"])

    assert end.value.code == 0
    assert "hexdigest-shard load crawl.sqlite3 urls.txt --shards 4" in capsys.readouterr().out


def test_lists_may_stand_on_both_sides_of_an_option(store: Path, tmp_path: Path) -> None:
    lists = [tmp_path / name for name in ("one.txt", "two.txt")]
    for listed in lists:
        listed.write_text(f"{listed.stem}\n")

    assert main(["load", str(store), str(lists[0]), "--shards", "4", str(lists[1])]) == 0

    assert stored(store) == 2


def test_a_name_that_cannot_be_looked_up_is_said_in_a_sentence(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["load", str(store), "x" * 300, "--shards", "4"]) == 2

    assert "File name too long." in capsys.readouterr().err
