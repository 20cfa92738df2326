"""One worker, without the main loop around it."""

from __future__ import annotations

import os
import subprocess
import sys

from scrapy_hexshard.launcher.console import Console
from scrapy_hexshard.launcher.logs import ShardOutput
from scrapy_hexshard.launcher.plan import make_plan
from scrapy_hexshard.launcher.reports import Totals
from scrapy_hexshard.launcher.restarts import Restarts
from scrapy_hexshard.launcher.worker import Worker
from scrapy_hexshard.redaction import Redactor

REAPING = """
import os, subprocess
from scrapy_hexshard.launcher.child import reap_stranger
os.getpid = lambda: 1
own = subprocess.Popen(["sh", "-c", "exit 7"])
os.waitid(os.P_PID, own.pid, os.WEXITED | os.WNOWAIT)
assert not reap_stranger({own.pid})
assert own.wait() == 7
stranger = subprocess.Popen(["true"])
os.waitid(os.P_PID, stranger.pid, os.WEXITED | os.WNOWAIT)
assert reap_stranger({own.pid})
assert not reap_stranger(set())
"""


def test_the_last_reports_of_a_life_are_read_when_it_is_buried(worker, until):
    spec = make_plan((*worker, "open", "close=finished"), 1, os.environ).specs[0]
    console = Console(os.dup(1), os.dup(2))
    each = Worker(spec, ShardOutput(0, Redactor([]), console), Restarts(0, 1.0), grace=1000)
    lifeline, end = os.pipe()
    each.start(lifeline, now=10.0)
    until(lambda: each.has_ended(11.0))
    life = each.bury(12.5)
    assert (life.returncode, life.finished, life.seconds) == (0, True, 2.5)
    assert life.totals == each.totals == Totals(done=3, items=3)
    assert not each.active
    os.close(lifeline)
    os.close(end)


def test_only_strangers_are_reaped_beside_the_workers():
    subprocess.run([sys.executable, "-c", REAPING], check=True, timeout=60)
