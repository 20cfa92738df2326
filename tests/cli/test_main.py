"""What all commands of ``hexdigest-shard`` have in common."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from scrapy_hexshard.cli import COMMANDS, main, split_command


def hexdigest_shard(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", "scrapy_hexshard", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


def test_the_help_names_every_command():
    result = hexdigest_shard("--help")
    assert result.returncode == 0
    for command in COMMANDS:
        assert f"\n    {command} " in result.stdout


@pytest.mark.parametrize("words", [(), ("no-such-command",), ("run", "--no-such-option")])
def test_wrong_usage_ends_with_2_and_no_traceback(words):
    result = hexdigest_shard(*words)
    assert result.returncode == 2
    assert result.stderr.startswith("usage: hexdigest-shard")
    assert "Traceback" not in result.stderr


def test_a_worker_command_without_dashes_before_it_is_told_where_to_stand():
    result = hexdigest_shard("run", "--shards", "2", "scrapy", "crawl", "products", "-a", "x=1")
    assert result.returncode == 2
    assert "scrapy crawl products -a x=1. Write the workers' command after --." in result.stderr


def test_an_unknown_option_of_run_is_not_taken_for_a_command():
    result = hexdigest_shard("run", "--no-such-option", "--shards", "2")
    assert result.returncode == 2
    assert result.stderr.endswith("unrecognized arguments: --no-such-option\n")


def test_an_error_is_one_sentence_and_exit_code_2(capsys):
    assert main(["owner", "key", "--shards", "0"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("hexdigest-shard: The number of shards ")
    assert said.count("\n") == 1


def test_a_reader_that_leaves_early_is_no_traceback(tmp_path):
    (tmp_path / "keys").write_text("key\n" * 100_000)
    command = [sys.executable, "-m", "scrapy_hexshard", "owner", "--shards", "4", "-"]
    with (tmp_path / "keys").open() as keys:
        process = subprocess.Popen(
            command, stdin=keys, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    with process:
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 141


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_needs_scrapy_to_start(command):
    look = (
        "import sys; from scrapy_hexshard.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print('scrapy' in sys.modules, 'twisted' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", look, command, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert result.stdout.splitlines()[-1] == "False False"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "--shards", "2"], (["run", "--shards", "2"], None)),
        (["run", "--", "a", "--", "b"], (["run"], ("a", "--", "b"))),
        (["run", "--"], (["run"], ())),
        (["owner", "--", "-key"], (["owner", "--", "-key"], None)),
    ],
)
def test_only_run_has_a_command_of_its_own(words, expected):
    assert split_command(words) == expected


def with_closed(redirection, *words):
    script = f'exec "$@" {redirection}'
    return subprocess.run(
        ["sh", "-c", script, "sh", sys.executable, "-m", "scrapy_hexshard", *words],
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("owner", "key", "--shards", "4"), 0),
        (("owner", "key", "--shards", "0"), 2),
        (("run", "--shards", "1", "--", "true"), 0),
        (("run", "--shards", "1", "--", "false"), 1),
        (("no-such-command",), 2),
    ],
)
def test_closed_output_changes_no_exit_code(redirection, words, code):
    result = with_closed(redirection, *words)
    assert result.returncode == code
    assert "Traceback" not in result.stderr


def test_output_on_a_full_disk_is_a_sentence():
    result = with_closed(">/dev/full", "owner", "key", "--shards", "4")
    assert result.returncode == 2
    assert result.stderr.startswith("hexdigest-shard: Cannot go on: ")
    assert "No space left on device" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_character_the_terminal_does_not_know_is_escaped():
    environ = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = hexdigest_shard("owner", "caf\u00e9", "--shards", "1", env=environ)
    assert (result.returncode, result.stdout) == (0, "0\tcaf\\xe9\n")


def test_keys_may_stand_on_both_sides_of_an_option(capsys):
    assert main(["owner", "a", "--shards", "1", "b"]) == 0
    assert capsys.readouterr().out == "0\ta\n0\tb\n"


@pytest.mark.parametrize("command", ["run --shards 2 -- true", "status crawl.sqlite3", "--help"])
def test_a_system_without_posix_locks_is_refused_with_a_sentence(command, tmp_path):
    code = (
        "import sys\nsys.modules['fcntl'] = None\nfrom scrapy_hexshard.cli import main\n"
        f"sys.exit(main({command.split()!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.startswith("hexdigest-shard needs a POSIX system")
    assert done.stderr.count("\n") == 1
