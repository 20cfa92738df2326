"""``hexdigest-shard run``: one worker process per shard, watched to the end."""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path
from typing import Any

from scrapy_hexshard.errors import LaunchError
from scrapy_hexshard.launcher.launch import LaunchOptions, launch
from scrapy_hexshard.launcher.plan import make_plan

_EPILOG = """\
The command is run once per shard, without a shell. {shard} and {shards} in its arguments are
replaced, and CRAWL_SHARD and CRAWL_SHARDS are set; {{shard}} stands for a literal {shard}.
PROXY_URL_<shard> reaches its own worker alone, as PROXY_URL.

exit code: 0 all shards finished, 1 a worker failed, 2 usage, 126 or 127 the command cannot be run,
130, 143 or 129 stopped by SIGINT, SIGTERM or SIGHUP

example: hexdigest-shard run --shards 4 --log-dir logs -- scrapy crawl products
"""


def add_parser(subparsers: Any) -> None:
    """Add the command to those of ``hexdigest-shard``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "run",
        help="start one worker per shard and watch them",
        usage="hexdigest-shard run --shards N [options] -- command [argument ...]",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--shards", type=int, required=True, metavar="N", help="number of shards, fixed for ever")
    add("--log-dir", type=Path, metavar="DIR", help="one log file per shard; else to the console")
    add("--dry-run", action="store_true", help="print the commands and start nothing")
    add(
        "--inherit-proxy", action="store_true", help="let HTTP_PROXY and the like reach the workers"
    )
    add("--require-proxy", action="store_true", help="refuse to start if a shard has no proxy")
    add(
        "--grace",
        type=_seconds,
        default=25.0,
        metavar="SECONDS",
        help="time from SIGTERM to SIGKILL, with a second SIGTERM at 80 %% of it (%(default)g)",
    )
    add(
        "--max-restarts",
        type=_count,
        default=0,
        metavar="N",
        help="restart a failed worker, up to N times in a row without progress (%(default)d)",
    )
    add(
        "--no-progress",
        dest="show_progress",
        action="store_false",
        help="neither a live view on a terminal nor a line a minute elsewhere",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the workers; returns the exit code. Raises HexShardError if they cannot be started."""
    if arguments.worker_command is None:
        raise LaunchError("Write the workers' command after --, such as -- scrapy crawl products.")
    plan = make_plan(
        arguments.worker_command,
        arguments.shards,
        os.environ,
        inherit_proxy=arguments.inherit_proxy,
        require_proxy=arguments.require_proxy,
    )
    if arguments.dry_run:
        sys.stdout.write(plan.describe())
        sys.stdout.flush()
        sys.stderr.writelines(f"hexdigest-shard: {notice}\n" for notice in plan.notices)
        return 0
    return launch(
        plan,
        LaunchOptions(
            log_dir=arguments.log_dir,
            grace=arguments.grace,
            max_restarts=arguments.max_restarts,
            show_progress=arguments.show_progress,
        ),
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0 or more")
    return seconds


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")
    return int(text)
