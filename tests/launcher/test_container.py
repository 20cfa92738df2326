"""The launcher as process 1, as in a container without an init."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

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


def can_unshare() -> bool:
    if not shutil.which("unshare"):
        return False
    return (
        subprocess.run(
            ["unshare", "--pid", "--fork", "true"], capture_output=True, check=False
        ).returncode
        == 0
    )


@pytest.mark.skipif(not can_unshare(), reason="needs the right to make a process namespace")
def test_process_1_reaps_strangers_and_still_judges_its_own():
    words = ["run", "--shards", "3", "--", "sh", "-c", ORPHANS]
    result = subprocess.run(
        ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", AS_ONE, *words],
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
