"""The main loop: starts the workers, waits for signals, reports and ends, restarts and stops."""

from __future__ import annotations

import errno
import math
import os
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from scrapy_hexshard.launcher.announcements import obituary, stage_sentence, worker_count
from scrapy_hexshard.launcher.child import reap_stranger
from scrapy_hexshard.launcher.console import Console
from scrapy_hexshard.launcher.ladder import Stage
from scrapy_hexshard.launcher.signals import SignalInbox
from scrapy_hexshard.launcher.stall import PULSE_SECONDS, Pulse
from scrapy_hexshard.launcher.verdict import State
from scrapy_hexshard.launcher.worker import Worker

EXIT_FAILED = 1
_EXIT_OF_ERRNO = {errno.ENOENT: 127, errno.EACCES: 126, errno.ENOEXEC: 126}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the run ended: by a signal, by a process that could not be started, or by itself."""

    stopped_by: signal.Signals | None
    start_failure: int | None  # the exit code for it
    workers: Sequence[Worker]

    @property
    def exit_code(self) -> int:
        """The launcher's exit code: that of what ended the run first, or of the verdicts."""
        if self.stopped_by is not None:
            return 128 + self.stopped_by
        if self.start_failure is not None:
            return self.start_failure
        failed = any(worker.verdict.state is State.FAILED for worker in self.workers)
        return EXIT_FAILED if failed else 0


class Onlooker(Protocol):
    """Wants to look at the workers from time to time."""

    next_at: float

    def look(self, now: float) -> None:
        """Look at them, if it is time."""


class Supervisor:
    """Runs *workers* until each has ended for good; everything happens in the caller's thread."""

    def __init__(
        self,
        workers: Sequence[Worker],
        inbox: SignalInbox,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
        onlooker: Onlooker | None = None,
        *,
        stagger: float = 0.0,
        fail_fast: bool = False,
    ) -> None:
        self._workers = workers
        self._inbox = inbox
        self._console = console
        self._clock = clock
        self._onlooker = onlooker
        self._stagger = stagger
        self._fail_fast = fail_fast
        self._selector = selectors.DefaultSelector()
        # Closed by the system when this process ends, however it does: that tells the workers.
        self._lifeline, self._lifeline_end = os.pipe()
        self._pulse = Pulse()
        self._stopping = False
        self._asked_to_stop = False
        self._stopped_by: signal.Signals | None = None
        self._start_failure: int | None = None

    def run(self) -> Outcome:
        """Start the workers, and come back once none is left and none is to be started."""
        self._selector.register(self._inbox, selectors.EVENT_READ)
        now = self._clock()
        for place, worker in enumerate(self._workers):
            worker.start_at = now + place * self._stagger
        try:
            while any(worker.active for worker in self._workers):
                self._turn()
        finally:
            self._close()
        return Outcome(self._stopped_by, self._start_failure, self._workers)

    def _turn(self) -> None:
        self._wait()
        for number in self._inbox.take():
            self._obey(number)
        self._stop_the_stalled()
        self._climb()
        self._bury_the_dead()
        self._start_next()
        if self._onlooker:
            self._onlooker.look(self._clock())

    def _wait(self) -> None:
        now = self._clock()
        times = [at for worker in self._workers if (at := worker.next_at(now)) is not None]
        if self._onlooker:
            times.append(self._onlooker.next_at)
        until = min(times, default=math.inf)
        # To look after all workers at each report of one takes more time than all else here.
        while not self._hear(min(max(0.0, until - now), PULSE_SECONDS)):
            if (now := self._clock()) >= until:
                break

    def _hear(self, timeout: float) -> bool:
        """Take in what workers report; whether there is more to do: a signal, an end, the time."""
        ready = self._selector.select(timeout)
        if lost := self._pulse.beat(self._clock()):
            for worker in self._workers:
                worker.postpone(lost)
        for key, _ in ready:
            if key.data is None:
                return True
            if not key.data.read_status(self._clock()):
                self._selector.unregister(key.fileobj)
                return True
        return not ready

    def _obey(self, number: signal.Signals) -> None:
        first, self._asked_to_stop = not self._asked_to_stop, True
        if not self._stopping:
            self._stopped_by = number
            self._stop()
            running = sum(worker.child is not None for worker in self._workers)
            self._console.say(f"{number.name}: stopping {worker_count(running)}.")
        elif first:
            # Who asks for the first time does not ask to lose what is in flight.
            self._console.say(f"{number.name}: the workers are being stopped already.")
        elif number is signal.SIGINT:
            # Only a key pressed again asks for more: a closing terminal sends SIGHUP twice.
            for worker in self._workers:
                worker.push()

    def _stop(self) -> None:
        """Tell all workers to stop, before a word of it is written anywhere."""
        self._stopping = True
        now = self._clock()
        for worker in self._workers:
            worker.stop(now)
        self._climb()

    def _stop_the_stalled(self) -> None:
        now = self._clock()
        for worker in self._workers:
            if worker.stop_if_stalled(now):
                self._console.say(f"shard {worker.shard}: stopping it, as it makes no progress.")

    def _climb(self) -> None:
        now = self._clock()
        reached: dict[Stage, list[int]] = {}
        for worker in self._workers:
            for stage in worker.climb(now):
                reached.setdefault(stage, []).append(worker.shard)
        for stage, shards in reached.items():
            if said := stage_sentence(stage, shards):
                self._console.say(said)

    def _bury_the_dead(self) -> None:
        now = self._clock()
        for worker in self._workers:
            if worker.has_ended(now):
                self._bury(worker)
        own = {worker.child.pid for worker in self._workers if worker.child}
        while reap_stranger(own):
            pass

    def _bury(self, worker: Worker, *, for_good: bool = False) -> None:
        if worker.child and worker.child.status in self._selector.get_map():
            self._selector.unregister(worker.child.status)
        now = self._clock()
        life = worker.bury(now)
        for_good = for_good or self._stopping
        others = [each for each in self._workers if each is not worker]
        delay = None if for_good else worker.restarts.delay_after(life, others)
        worker.start_at = None if delay is None else now + delay
        said = obituary(worker.verdict, life, delay, worker.restarts.hopeless)
        self._console.say(f"shard {worker.shard}: {said}")
        failed = delay is None and worker.verdict.state is State.FAILED
        if failed and self._fail_fast and not self._stopping:
            self._stop()
            self._console.say(f"--fail-fast: stopping all, as shard {worker.shard} failed.")

    def _start_next(self) -> None:
        """Start one worker at most, so that a signal is heard between two."""
        now = self._clock()
        due = (each for each in self._workers if each.start_at is not None and each.start_at <= now)
        worker = next(due, None)
        if worker is None:
            return
        try:
            child = worker.start(self._lifeline, now)
        except OSError as error:
            self._cannot_start(worker, error)
            return
        self._selector.register(child.status, selectors.EVENT_READ, worker)
        again = f", life {len(worker.lives) + 1}" if worker.lives else ""
        self._console.say(f"shard {worker.shard}: started as process {child.pid}{again}.")

    def _cannot_start(self, worker: Worker, error: OSError) -> None:
        self._console.say(f"shard {worker.shard}: cannot be started: {error.strerror}.")
        first = not worker.lives
        self._bury(worker, for_good=first)
        if first:
            # One shard without a worker is keys that nobody crawls.
            never_ran = not any(
                each.child or each.lives for each in self._workers if each is not worker
            )
            self._start_failure = (
                _EXIT_OF_ERRNO.get(error.errno or 0, EXIT_FAILED) if never_ran else EXIT_FAILED
            )
            self._stop()

    def _close(self) -> None:
        for worker in self._workers:
            if worker.child:  # only when this loop itself has failed
                worker.child.kill()
        self._selector.close()
        os.close(self._lifeline)
        os.close(self._lifeline_end)
