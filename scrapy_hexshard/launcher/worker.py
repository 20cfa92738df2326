"""The worker of one shard over all its lives."""

from __future__ import annotations

import errno

from scrapy_hexshard.launcher.child import Child
from scrapy_hexshard.launcher.ladder import Ladder, Stage
from scrapy_hexshard.launcher.logs import ShardOutput
from scrapy_hexshard.launcher.plan import ProcessSpec
from scrapy_hexshard.launcher.reports import Extent, Fault, Reports, Totals
from scrapy_hexshard.launcher.restarts import Restarts
from scrapy_hexshard.launcher.stall import StallWatch
from scrapy_hexshard.launcher.verdict import Life, Verdict, judge
from scrapy_hexshard.sharding import SHARDS_VARIABLE

MAX_REASON = 80  # characters shown
MAX_DETAIL = 300
MAX_FAULT = 80

SWEEP_SECONDS = 0.05  # how often to look whether the rest of a process group has gone


class Worker:
    """Starts a shard's process, carries out what is due to it, and keeps the lives that ended."""

    def __init__(
        self,
        spec: ProcessSpec,
        output: ShardOutput,
        restarts: Restarts,
        grace: float,
        stall_timeout: float | None = None,
    ) -> None:
        self.shard = spec.shard
        self.output = output
        self.restarts = restarts
        self.lives: list[Life] = []
        self.start_at: float | None = None
        self.child: Child | None = None
        self._spec = spec
        self._grace = grace
        self._ladder = Ladder(grace)
        self._reports = Reports()
        self._extent: Extent | None = None
        self._told_to_stop = False
        self._watch = StallWatch(stall_timeout)
        self._stalled = False
        self._started = 0.0

    @property
    def active(self) -> bool:
        """Whether it runs, or is to be started."""
        return self.child is not None or self.start_at is not None

    @property
    def totals(self) -> Totals:
        """The totals of all its lives, the present one included."""
        return sum((life.totals for life in self.lives), self._reports.totals)

    @property
    def alive(self) -> bool:
        """Whether something of its present life is left."""
        return self.child is not None

    @property
    def opened(self) -> bool:
        """Whether its present life has reported a spider."""
        return self._reports.heard

    @property
    def stopping(self) -> bool:
        """Whether its present life was told to stop, or is ending."""
        return self._ladder.begun

    @property
    def running(self) -> int:
        """The keys it works on at the moment."""
        return self._reports.running

    @property
    def extent(self) -> Extent | None:
        """The keys of its shard, as far as it has told them."""
        known = self._reports.extent or self._extent
        if known and self.lives and self.lives[-1].finished and not self.alive:
            return known._replace(open=0)
        return known

    @property
    def verdict(self) -> Verdict:
        """The verdict on the lives that have ended."""
        return judge(self.lives)

    def start(self, lifeline: int, now: float) -> Child:
        """Begin a life; raises OSError if the process cannot be started."""
        self.start_at = None
        self._started = now
        self._ladder = Ladder(self._grace)
        self._told_to_stop = False
        self._stalled = False
        child = Child.start(self._spec, lifeline)
        self._watch.begin(now, self._mark)
        try:
            self.output.follow(child.output)
        except RuntimeError:  # no thread to be had: nobody would read what it writes
            child.abandon()
            raise OSError(errno.EAGAIN, "no thread is left to read its output") from None
        self.child = child
        return child

    def stop(self, now: float) -> None:
        """Begin to stop it; it is not started again."""
        self.start_at = None
        if self.child:
            self._told_to_stop = self.child.leader_lives
            self._ladder.begin(now)

    def stop_if_stalled(self, now: float) -> bool:
        """Begin to stop it if it has made no progress for too long; whether that is so."""
        if self.child is None or self.stopping:
            return False
        if not self.opened:
            self._watch.look(now, self._mark)
        # What it reported while this process was stopped is still to be read.
        while self._watch.is_over(now) and self.read_status(now):
            pass
        if not self._watch.is_over(now):
            return False
        self._stalled = True
        self._ladder.begin(now)
        return True

    def postpone(self, seconds: float) -> None:
        """Give it that much more time before it counts as stalled."""
        self._watch.postpone(seconds)

    def push(self) -> None:
        """Make the next stage of stopping due at once."""
        self._ladder.push()

    def climb(self, now: float) -> list[Stage]:
        """Carry out what is due of stopping it, and tell what that was."""
        if self.child is None:
            return []
        stages = list(self._ladder.climb(now))
        for stage in stages:
            if stage is Stage.KILLED:
                self.child.kill()
            elif stage is not Stage.GIVEN_UP:
                self.child.terminate()
        return stages

    def read_status(self, now: float) -> bool:
        """Take in what the status pipe holds; False when it holds nothing, or has ended."""
        data = self.child.read_status() if self.child else b""
        self._reports.feed(data)
        if data and self.opened:
            self._watch.look(now, self._mark, idle=self.running == 0)
        return bool(data)

    @property
    def _mark(self) -> tuple[bool, int]:
        """What changes as long as it gets on."""
        # Before it opens it imports its project, or is no Scrapy process: then its output tells.
        return self.opened, self._reports.totals.moves if self.opened else self.output.bytes_read

    def has_ended(self, now: float) -> bool:
        """Whether nothing is left of this life; once its leader has ended, the rest is stopped."""
        if self.child is None:
            return False
        if self.child.ended():
            # From here on the ladder is for what is left of the group, which has had its SIGTERM.
            self._ladder.begin(now)
            self._ladder.stage = max(self._ladder.stage, Stage.ASKED)
            if self.child.group_is_empty():
                return True
        return self._ladder.stage is Stage.GIVEN_UP

    def bury(self, now: float) -> Life:
        """Read the last reports of the life that has ended, or never began, and keep it."""
        while self.read_status(now):
            pass
        self._extent = self._reports.extent or self._extent
        reports, self._reports = self._reports, Reports()
        child, self.child = self.child, None
        if child:
            child.close()
        life = Life(
            returncode=child.returncode if child else None,
            reported=reports.heard,
            finished=reports.finished,
            reason=self._shown(reports.reason, MAX_REASON),
            detail=self._shown(reports.detail, MAX_DETAIL),
            fault=self._shown_fault(reports.fault),
            totals=reports.totals,
            unreadable=reports.unreadable,
            wrong_shard=reports.shard if self._is_another(reports.shard) else None,
            told_to_stop=self._told_to_stop,
            stalled=self._stalled,
            forced=self._ladder.stage >= Stage.KILLED,
            given_up=self._ladder.stage is Stage.GIVEN_UP,
            started_at=self._started,
            seconds=now - self._started,
        )
        self.lives.append(life)
        return life

    def _shown(self, text: str | None, limit: int) -> str | None:
        # A spider may close for any reason it likes, such as the text of a page. First what is
        # secret: it would not be known any more without its unprintable characters.
        hidden = self.output.redactor.hide_text(text or "")
        line = "".join(char if char.isprintable() else " " for char in hidden)
        return (line if len(line) <= limit else f"{line[:limit]}...") or None

    def _shown_fault(self, fault: Fault | None) -> Fault | None:
        outcome = self._shown(fault.outcome, MAX_FAULT) if fault else None
        return fault._replace(outcome=outcome) if fault and outcome else None

    def _is_another(self, shard: int | None) -> bool:
        # The only worker of a launcher may well work some shard of a crawl on many machines.
        alone = self._spec.environ[SHARDS_VARIABLE] == "1"
        return shard is not None and shard != self.shard and not alone

    def next_at(self, now: float) -> float | None:
        """When it wants attention, if nothing happens before."""
        if self.child is None:
            return self.start_at
        if not self.child.leader_lives:
            return now + SWEEP_SECONDS
        return self._ladder.next_at() if self.stopping else self._watch.next_at()
