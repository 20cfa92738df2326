"""The launcher as process 1, as in a container without an init."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.checked_proxy import Silence

# Leaves two orphans: one that ends at once, and one in a session of its own.
ORPHANS = "(sleep 0.1 &) ; setsid sh -c 'sleep 0.2' & sleep 1; exit 3"
# As process 1 of its own namespace: what is left must be nothing but the launcher's helper.
AS_ONE = """
import os, sys
from scrapy_hexshard.cli import main
assert os.getpid() == 1
code = main(sys.argv[1:])
try:
    left = os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    left = None
print("left", left, flush=True)
os._exit(code)
"""


UNSHARE = ("unshare", "--pid", "--fork", "--kill-child")


def can_unshare() -> bool:
    if not shutil.which("unshare"):
        return False
    return (
        subprocess.run(
            ["unshare", "--pid", "--fork", "true"], capture_output=True, check=False
        ).returncode
        == 0
    )


needs_namespace = pytest.mark.skipif(
    not can_unshare(), reason="needs the right to make a process namespace"
)


@needs_namespace
def test_process_1_reaps_strangers_and_still_judges_its_own():
    words = ["run", "--shards", "3", "--", "sh", "-c", ORPHANS]
    result = subprocess.run(
        [*UNSHARE, sys.executable, "-c", AS_ONE, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 1, result.stdout + result.stderr
    assert "left None" in result.stdout
    assert (
        result.stderr.count("failed: its process ended with exit 3") == 6
    )  # once live, once at the end


@needs_namespace
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_process_1_during_the_check_of_the_proxies_is_heard(tmp_path, number):
    silence = Silence()
    words = ["run", "--shards", "1", "--check-proxies", "--", "touch", f"{tmp_path}/started"]
    command = [*UNSHARE, sys.executable, "-c", AS_ONE, *words]
    environ = {**os.environ, "PROXY_URL_0": silence.url}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=environ, text=True)
    with process, silence.wait():
        (one,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(one), number)
        said = process.communicate(timeout=60)[1]
    silence.close()
    assert process.returncode == 128 + number
    assert f"{number.name}: nothing was started." in said
    assert not (tmp_path / "started").exists()


# As the console script does, but for a signal that comes before the launcher has begun.
EARLY = """
import os, signal, sys
from scrapy_hexshard import cli
assert os.getpid() == 1
parse = cli._parse
def parse_later(words):
    os.kill(1, signal.Signals[os.environ["NUMBER"]])
    return parse(words)
cli._parse = parse_later
sys.exit(cli.main(sys.argv[1:]))
"""


@needs_namespace
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_process_1_before_it_has_read_its_options_is_not_lost(tmp_path, number):
    words = ["run", "--shards", "1", "--", "touch", f"{tmp_path}/started"]
    result = subprocess.run(
        [*UNSHARE, sys.executable, "-c", EARLY, *words],
        env={**os.environ, "NUMBER": number.name},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 128 + number, result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "started").exists()


@needs_namespace
def test_what_was_ignored_before_process_1_began_stays_so():
    words = ["run", "--shards", "1", "--", "true"]
    ignoring = f"import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n{EARLY}"
    result = subprocess.run(
        [*UNSHARE, sys.executable, "-c", ignoring, *words],
        env={**os.environ, "NUMBER": "SIGHUP"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
