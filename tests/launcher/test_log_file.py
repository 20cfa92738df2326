"""Log files that make room for new ones."""

from __future__ import annotations

import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_hexshard.errors import LaunchError
from scrapy_hexshard.launcher.log_file import LogFile, Rotation

NAME = "shard-0000.log"


def test_a_full_file_makes_room_for_a_new_one_and_the_oldest_goes(tmp_path):
    log = LogFile(tmp_path, 0, Rotation(max_bytes=10, keep=2))
    for number in range(6):
        log.write(b"line %d\n" % number)
    log.close()
    kept = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert kept == {NAME: b"line 5\n", f"{NAME}.1": b"line 4\n", f"{NAME}.2": b"line 3\n"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}


def test_what_is_there_already_counts(tmp_path):
    (tmp_path / NAME).write_bytes(b"x" * 8 + b"\n")
    log = LogFile(tmp_path, 0, Rotation(max_bytes=10))
    log.write(b"new\n")
    log.close()
    assert (tmp_path / f"{NAME}.1").read_bytes() == b"x" * 8 + b"\n"


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=30), st.integers(1, 40))
def test_no_line_is_cut_and_nothing_is_lost(tmp_path_factory, pieces, max_bytes):
    folder = tmp_path_factory.mktemp("logs")
    log = LogFile(folder, 0, Rotation(max_bytes, keep=99))
    for piece in pieces:
        log.write(piece)
    log.close()
    number = len(list(folder.iterdir())) - 1
    older = [(folder / f"{NAME}.{n}").read_bytes() for n in range(number, 0, -1)]
    assert b"".join([*older, (folder / NAME).read_bytes()]) == b"".join(pieces)
    assert all(text.endswith(b"\n") for text in older)


@pytest.mark.parametrize("keep", [0, 1])
def test_as_many_older_files_stay_as_are_to_be_kept(tmp_path, keep):
    log = LogFile(tmp_path, 0, Rotation(max_bytes=3, keep=keep))
    for _ in range(9):
        log.write(b"xx\n")
    log.close()
    assert len(list(tmp_path.iterdir())) == 1 + keep


def test_without_a_size_a_file_grows_on(tmp_path):
    log = LogFile(tmp_path, 0, Rotation(max_bytes=0))
    for _ in range(9):
        log.write(b"xx\n")
    log.close()
    assert (tmp_path / NAME).stat().st_size == 27


def test_what_is_no_file_is_never_moved(tmp_path):
    (tmp_path / NAME).symlink_to("/dev/null")
    log = LogFile(tmp_path, 0, Rotation(max_bytes=3))
    for _ in range(9):
        log.write(b"xx\n")
    log.close()
    assert [file.name for file in tmp_path.iterdir()] == [NAME]
    assert log.failure is None


def test_a_file_that_cannot_be_moved_is_written_on_and_that_is_said(tmp_path):
    log = LogFile(tmp_path, 0, Rotation(max_bytes=3, keep=1))
    (tmp_path / f"{NAME}.1").mkdir()
    log.write(b"one\n")
    log.write(b"two\n")
    log.write(b"three\n")
    log.close()
    assert (tmp_path / NAME).read_bytes() == b"one\ntwo\nthree\n"
    assert "cannot start" in (log.failure or "")
    assert os.strerror(21) in (log.failure or "")


def test_the_launcher_rotates_the_logs_of_its_workers(launch, worker, tmp_path):
    options = ("--log-dir", str(tmp_path), "--log-size", "1K", "--log-keep", "1")
    words = [f"say={'x' * 99}{number}" for number in range(40)]
    assert launch("--shards", "1", *options, "--", *worker, *words).end() == 0
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == [NAME, f"{NAME}.1"]
    assert all(0 < file.stat().st_size <= 1024 for file in files)
    assert files[0].read_text().endswith("x39\n")


def test_a_link_to_a_file_is_refused(tmp_path):
    (tmp_path / "elsewhere").write_text("precious")
    (tmp_path / NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LaunchError, match="it is a link, and not to a device"):
        LogFile(tmp_path, 0)
    (tmp_path / NAME).unlink()
    (tmp_path / NAME).symlink_to(tmp_path / "nowhere")
    with pytest.raises(LaunchError, match="it is a link"):
        LogFile(tmp_path, 0)
    assert (tmp_path / "elsewhere").read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


def test_a_named_pipe_that_nobody_reads_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / NAME)
    with pytest.raises(LaunchError, match="Cannot write"):
        LogFile(tmp_path, 0)


def test_one_that_is_read_is_waited_for(tmp_path):
    os.mkfifo(tmp_path / NAME)
    reader = os.open(tmp_path / NAME, os.O_RDONLY | os.O_NONBLOCK)
    log = LogFile(tmp_path, 0)
    assert os.get_blocking(log._fd)
    log.close()
    os.close(reader)


@pytest.mark.parametrize(("mode", "warns"), [(0o755, False), (0o775, True), (0o757, True)])
def test_a_folder_to_which_others_can_write_is_told(launch, worker, tmp_path, mode, warns):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs").chmod(mode)
    run = launch("--shards", "1", "--log-dir", f"{tmp_path}/logs", "--", *worker)
    assert run.end() == 0
    assert (f"Others can write to {tmp_path}/logs; chmod go-w mends that." in run.text) is warns
