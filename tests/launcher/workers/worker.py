"""A worker without Scrapy, as the launcher sees one: it speaks over the pipes and obeys signals.

Each argument is one thing to do, in order.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from scrapy_hexshard.pipes import LauncherPipes

pipes = LauncherPipes.take()
terms = 0


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def heard(number: int, frame: object) -> None:
    global terms  # noqa: PLW0603
    terms += 1
    say(f"heard {signal.Signals(number).name} {terms}")


def stop_when_gone() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def wait_for(count: int) -> None:
    say(f"ready {os.getpid()}")
    while terms < count:
        time.sleep(0.02)


def act(word: str) -> None:
    action, _, value = word.partition("=")
    match action:
        case "open":
            shard, shards = (int(os.environ[name]) for name in ("CRAWL_SHARD", "CRAWL_SHARDS"))
            pipes.report("opened", pid=os.getpid(), spider="s", shard=shard, shards=shards)
        case "report":
            report = json.loads(value)
            pipes.report(report.pop("event"), **report)
        case "beat":  # say for so long, again and again, that there is nothing to do
            until = time.monotonic() + float(value)
            while time.monotonic() < until:
                pipes.report("progress", running=0)
                time.sleep(0.2)
        case "close":
            pipes.report("closed", reason=value, done=3, items=3)
        case "until-term":
            wait_for(int(value or 1))
        case "wait":  # until there is such a file
            while not Path(value).exists():
                time.sleep(0.02)
        case "say":
            say(value)
        case "exit":
            sys.exit(int(value))
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "child":  # leave a process behind, in this group
            child = subprocess.Popen([sys.executable, __file__, *value.split("+")])
            say(f"child {child.pid}")
        case "environ":
            Path(value).write_text(json.dumps(dict(os.environ)))
        case "argv":
            say(json.dumps(sys.argv))
        case _:
            raise ValueError(word)


signal.signal(signal.SIGTERM, heard)
pipes.watch(stop_when_gone)
words = sys.argv[1:]
if words[:1] and words[0].startswith("life="):
    # life=FILE:a+b;c+d: the actions of each life, those of the last for all further ones.
    file, _, scripts = words[0][5:].partition(":")
    lives = Path(file).read_text().count("x") if Path(file).exists() else 0
    with Path(file).open("a") as stream:
        stream.write("x")
    choices = scripts.split(";")
    words = choices[min(lives, len(choices) - 1)].split("+")
for each in words:
    act(each)
