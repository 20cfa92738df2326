"""Who a worker is taken for, so that a test can let it die without a process."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

from scrapy_hexshard.store.process import ProcessIdentity

HERE = ProcessIdentity.of_this()
# Nobody can tell from here whether that one still runs: its lease has to be waited for.
FROZEN = replace(HERE, namespace="pid:[1]", born=1)


def dead_identity() -> ProcessIdentity:
    """The identity of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return replace(HERE, pid=process.pid, born=1)
