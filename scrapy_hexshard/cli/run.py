"""``hexdigest-shard run``: one worker process per shard, watched to the end."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scrapy_hexshard.errors import LaunchError
from scrapy_hexshard.launcher.launch import LaunchOptions, check_plan, launch
from scrapy_hexshard.launcher.log_file import Rotation
from scrapy_hexshard.launcher.plan import Plan, make_plan
from scrapy_hexshard.launcher.proxy_check import NO_SITE, Target, parse_target
from scrapy_hexshard.launcher.signals import SignalInbox
from scrapy_hexshard.launcher.stall import MIN_STALL_SECONDS
from scrapy_hexshard.launcher.summary_file import SummaryFile

_EPILOG = """\
The command is run once per shard, without a shell. {shard} and {shards} in its arguments are
replaced, and CRAWL_SHARD and CRAWL_SHARDS are set; {{shard}} stands for a literal {shard}.
PROXY_URL_<shard>, or the line in the file that PROXY_URL_FILE_<shard> names, reaches its own worker
alone, as PROXY_URL. PROXY_URL_TEMPLATE, with {shard} in it, is for all shards that have neither.

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
    _add_logs(add)
    add("--dry-run", action="store_true", help="print the commands and start nothing")
    _add_proxies(add)
    _add_times(add)
    _add_restarts(add)
    _add_output(add)
    parser.set_defaults(run=run)


def _add_logs(add: Callable[..., Any]) -> None:
    add("--log-dir", type=Path, metavar="DIR", help="one log file per shard; else to the console")
    rotation = Rotation()
    add(
        "--log-size",
        type=_bytes,
        default=rotation.max_bytes,
        metavar="BYTES",
        help="start a log file anew before it is larger; such as 500K, 20M or 1G; 0 is never (50M)",
    )
    add(
        "--log-keep",
        type=_count,
        default=rotation.keep,
        metavar="N",
        help="older log files kept for each shard (%(default)d)",
    )


def _add_proxies(add: Callable[..., Any]) -> None:
    add(
        "--inherit-proxy", action="store_true", help="let HTTP_PROXY and the like reach the workers"
    )
    add("--require-proxy", action="store_true", help="refuse to start if a shard has no proxy")
    add(
        "--check-proxies",
        nargs="?",
        const=NO_SITE,
        metavar="URL",
        help="first try the proxy of each shard, and start nothing if one fails; with URL, by "
        "asking for that page through it",
    )


def _add_times(add: Callable[..., Any]) -> None:
    add(
        "--grace",
        type=_seconds,
        default=25.0,
        metavar="SECONDS",
        help="time from SIGTERM to SIGKILL, with a second SIGTERM at 80 %% of it (%(default)g)",
    )
    add(
        "--stagger",
        type=_seconds,
        default=0.0,
        metavar="SECONDS",
        help="time between the starts of two workers (%(default)g)",
    )


def _add_restarts(add: Callable[..., Any]) -> None:
    add(
        "--max-restarts",
        type=_count,
        default=0,
        metavar="N",
        help="restart a failed worker, up to N times in a row without progress (%(default)d)",
    )
    add(
        "--stall-timeout",
        type=_stall_seconds,
        metavar="SECONDS",
        help="stop a worker that makes no progress for so long, and start it again",
    )
    add("--fail-fast", action="store_true", help="once a worker has failed, stop all the others")


def _add_output(add: Callable[..., Any]) -> None:
    add(
        "--summary-json",
        type=Path,
        metavar="FILE",
        help="write the table of the end, and each life of a worker, to FILE as JSON",
    )
    add(
        "--no-progress",
        dest="show_progress",
        action="store_false",
        help="neither a live view on a terminal nor a line a minute elsewhere",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the workers; returns the exit code. Raises HexShardError if they cannot be started."""
    # First of all, so that no start that fails leaves the summary of an earlier run.
    summary = None if arguments.dry_run else _summary(arguments.summary_json)
    if arguments.worker_command is None:
        raise LaunchError("Write the workers' command after --, such as -- scrapy crawl products.")
    plan = make_plan(
        arguments.worker_command,
        arguments.shards,
        os.environ,
        inherit_proxy=arguments.inherit_proxy,
        require_proxy=arguments.require_proxy,
    )
    check = _target(arguments.check_proxies)
    if arguments.dry_run:
        return _dry_run(plan, check)
    return launch(
        plan,
        LaunchOptions(
            log_dir=arguments.log_dir,
            log_rotation=Rotation(arguments.log_size, arguments.log_keep),
            grace=arguments.grace,
            stagger=arguments.stagger,
            max_restarts=arguments.max_restarts,
            stall_timeout=arguments.stall_timeout,
            fail_fast=arguments.fail_fast,
            show_progress=arguments.show_progress,
            check=check,
            summary=summary,
        ),
    )


def _summary(path: Path | None) -> SummaryFile | None:
    return SummaryFile(path) if path else None


def _target(option: str | Target | None) -> Target | None:
    return parse_target(option) if isinstance(option, str) else option


def _dry_run(plan: Plan, check: Target | None) -> int:
    for notice in plan.notices:
        _say(notice)
    if check:
        with SignalInbox() as inbox:
            check_plan(plan, check, inbox, _say)
    sys.stdout.write(plan.describe())
    sys.stdout.flush()
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"hexdigest-shard: {text}\n")
    sys.stderr.flush()


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0 or more")
    return seconds


def _stall_seconds(text: str) -> float:
    seconds = _seconds(text)
    if seconds < MIN_STALL_SECONDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is too short: workers report once a second, so {MIN_STALL_SECONDS:g} or more"
        )
    return seconds


def _bytes(text: str) -> int:
    match = re.fullmatch(r"([0-9]+)([KMG]?)", text.upper())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 500K, 20M or 1G")
    return int(match[1]) * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[match[2]]


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")
    return int(text)
