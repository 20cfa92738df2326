"""Where the output of each worker goes: its log file, the console, and never with a secret."""

from __future__ import annotations

import os
import re
import threading
import time
from contextlib import suppress

from scrapy_hexshard.launcher.console import Console
from scrapy_hexshard.launcher.lines import RedactedLines
from scrapy_hexshard.launcher.log_file import LogFile
from scrapy_hexshard.redaction import Redactor

_READ_BYTES = 65_536
_NOTEWORTHY = re.compile(rb"(?:^|[\s\[])(?:WARNING|ERROR|CRITICAL)(?=[]:\s])")


class ShardOutput:
    """Takes the output of the lives of one shard's worker.

    Without a log file every line goes to the console; with one only warnings and errors do.
    """

    def __init__(
        self, shard: int, redactor: Redactor, console: Console, log: LogFile | None = None
    ) -> None:
        self.redactor = redactor
        self.bytes_read = 0
        self._console = console
        self._log = log
        self._prefix = f"[{shard}] ".encode()
        self._threads: list[threading.Thread] = []
        self._failure_told = False
        self._shard = shard

    def follow(self, fd: int) -> None:
        """Read *fd* until its end, in a thread of its own, and close it."""
        thread = threading.Thread(
            target=self._read, args=(fd,), name=f"hexshard-output-{self._shard}", daemon=True
        )
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()

    def close(self, deadline: float) -> bool:
        """Whether all output has been read to its end, waiting no longer than time.monotonic()
        reaches *deadline*.
        """
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        complete = not any(thread.is_alive() for thread in self._threads)
        if self._log and complete:
            self._log.close()
        return complete

    def _read(self, fd: int) -> None:
        lines = RedactedLines(self.redactor)
        with suppress(OSError):
            while data := os.read(fd, _READ_BYTES):
                self.bytes_read += len(data)
                self._take(list(lines.feed(data)))
        os.close(fd)
        self._take([lines.end()])

    def _take(self, lines: list[bytes]) -> None:
        if self._log:
            self._write(self._log, b"".join(lines))
        all_of_them = not self._log or self._failure_told
        for line in lines:
            if line and (all_of_them or _NOTEWORTHY.search(line)):
                self._console.show(self._prefix + line.rstrip(b"\r\n") + b"\n")

    def _write(self, log: LogFile, data: bytes) -> None:
        log.write(data)
        if log.failure and not self._failure_told:
            self._failure_told = True
            self._console.say(f"shard {self._shard}: {log.failure}. Its lines go to the console.")
