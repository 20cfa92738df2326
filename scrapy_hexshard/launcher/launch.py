"""A whole run of the launcher, from options to exit code."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scrapy_hexshard.config import DEFAULT_LEASE_SECONDS
from scrapy_hexshard.errors import LaunchError
from scrapy_hexshard.launcher.console import Console
from scrapy_hexshard.launcher.live import LineAMinute, LiveView
from scrapy_hexshard.launcher.live_screen import can_draw
from scrapy_hexshard.launcher.log_file import LogFile, Rotation, is_open_to_others
from scrapy_hexshard.launcher.logs import ShardOutput
from scrapy_hexshard.launcher.plan import Plan, ProcessSpec, shard_names
from scrapy_hexshard.launcher.proxy_check import Target, check_proxies
from scrapy_hexshard.launcher.restarts import Restarts
from scrapy_hexshard.launcher.signals import SignalInbox
from scrapy_hexshard.launcher.summary import summarize
from scrapy_hexshard.launcher.summary_file import SummaryFile, summary_facts
from scrapy_hexshard.launcher.supervisor import Onlooker, Outcome, Supervisor
from scrapy_hexshard.launcher.worker import Worker
from scrapy_hexshard.redaction import Redactor

MAX_RESTART_DELAY = DEFAULT_LEASE_SECONDS / 2
_OUTPUT_PATIENCE = 2.0


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """How to run a plan. *grace*, *stagger* and *stall_timeout* are in seconds."""

    log_dir: Path | None = None
    log_rotation: Rotation = field(default_factory=Rotation)
    grace: float = 25.0
    stagger: float = 0.0
    max_restarts: int = 0
    stall_timeout: float | None = None
    fail_fast: bool = False
    show_progress: bool = True
    check: Target | None = None  # for which to try the proxies first
    summary: SummaryFile | None = None


def launch(plan: Plan, options: LaunchOptions) -> int:
    """Run *plan* to its end, or until a signal, and return the exit code.

    Raises LaunchError, with nothing started, for a command that cannot be run, a file that cannot
    be written, or proxies that fail their check; with exit code 1, at the end, if it is the summary
    that cannot be written.
    """
    for spec in plan.specs:
        check_command(spec)
    # First the signals: from here on none may end the launcher alone, and as process 1, which the
    # system spares until there is a handler, it would not hear them.
    with SignalInbox() as inbox:
        logs = [_log_file(options, spec) for spec in plan.specs]
        console = Console()
        try:
            for notice in (*plan.notices, *_notices_of_logs(options)):
                console.say(notice)
            if options.check:
                check_plan(plan, options.check, inbox, console.say)
            outcome = _run(plan, options, inbox, console, logs)
        finally:
            console.close()
    if options.summary:
        facts = summary_facts(outcome.workers, outcome.exit_code, outcome.stopped_by)
        options.summary.write(facts)
    return outcome.exit_code


def check_plan(plan: Plan, target: Target, inbox: SignalInbox, say: Callable[[str], None]) -> None:
    """Try the proxies of *plan*; raises LaunchError if one fails, or at a signal."""
    proxies = {spec.shard: spec.proxy for spec in plan.specs if spec.proxy}
    if not proxies:
        say("No shard has a proxy to try.")
    failed = check_proxies(proxies, target, say, inbox.peek)
    if number := inbox.peek():
        raise LaunchError(f"{number.name}: nothing was started.", exit_code=128 + number)
    if failed:
        raise LaunchError(
            f"Nothing was started, as a proxy failed: {shard_names(failed)}.", exit_code=1
        )


def check_command(spec: ProcessSpec) -> None:
    """Raise LaunchError unless its command can be run: 127 if missing, 126 if not executable."""
    command, path = spec.argv[0], spec.environ.get("PATH", os.defpath)
    if shutil.which(command, path=path):
        return
    shown = Redactor(spec.secrets).hide_text(command)
    if shutil.which(command, mode=os.F_OK, path=path) or (
        os.sep in command and Path(command).exists()
    ):
        raise LaunchError(f"{shown} is not an executable program.", exit_code=126)
    raise LaunchError(f"{shown}: no such command. Is its environment active?", exit_code=127)


def _run(
    plan: Plan,
    options: LaunchOptions,
    inbox: SignalInbox,
    console: Console,
    logs: Sequence[LogFile | None],
) -> Outcome:
    workers = [
        _worker(spec, options, console, log) for spec, log in zip(plan.specs, logs, strict=True)
    ]
    onlooker = _onlooker(options, workers, console)
    outcome = Supervisor(
        workers,
        inbox,
        console,
        onlooker=onlooker,
        stagger=options.stagger,
        fail_fast=options.fail_fast,
    ).run()
    console.end_view()
    _report(outcome, console)
    return outcome


def _worker(
    spec: ProcessSpec, options: LaunchOptions, console: Console, log: LogFile | None
) -> Worker:
    output = ShardOutput(spec.shard, Redactor(spec.secrets), console, log)
    restarts = Restarts(options.max_restarts, MAX_RESTART_DELAY)
    return Worker(spec, output, restarts, options.grace, options.stall_timeout)


def _onlooker(
    options: LaunchOptions, workers: Sequence[Worker], console: Console
) -> Onlooker | None:
    if not options.show_progress:
        return None
    if not can_draw(1, 2, os.environ):
        return LineAMinute(workers, console.say)
    view = LiveView(workers)
    console.show_view(view.lines)
    # After Ctrl-Z and fg the shell has written below the view.
    signal.signal(signal.SIGCONT, lambda *_: console.lose_place())
    return view


def _log_file(options: LaunchOptions, spec: ProcessSpec) -> LogFile | None:
    if options.log_dir is None:
        return None
    return LogFile(options.log_dir, spec.shard, options.log_rotation)


def _notices_of_logs(options: LaunchOptions) -> Iterator[str]:
    if options.log_dir and is_open_to_others(options.log_dir):
        yield f"Others can write to {options.log_dir}; chmod go-w mends that."


def _report(outcome: Outcome, console: Console) -> None:
    deadline = time.monotonic() + _OUTPUT_PATIENCE
    if held := [w.shard for w in outcome.workers if not w.output.close(deadline)]:
        console.say(f"{shard_names(held)}: a process outside its group still holds the output.")
    console.print(summarize(outcome.workers))
