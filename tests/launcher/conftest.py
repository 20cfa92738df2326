"""Runs the launcher as its users do: as a process of its own, on pipes or on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

PATIENCE = 60.0
WORKERS = Path(__file__).parent / "workers"
CLEAN = {name: value for name, value in os.environ.items() if "PROXY" not in name.upper()}


def until(condition: Callable[[], object], what: str = "the condition") -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE} s for {what}"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def script(name: str) -> tuple[str, str]:
    return sys.executable, str(WORKERS / name)


class Launcher:
    """A launcher that runs, and what it and its workers have said."""

    def __init__(self, process: subprocess.Popen[bytes], *outputs: int) -> None:
        self.process = process
        self.output = b""
        self._lock = threading.Lock()
        self._readers = [threading.Thread(target=self._read, args=(fd,)) for fd in outputs]
        for reader in self._readers:
            reader.start()

    def _read(self, fd: int) -> None:
        try:
            while data := os.read(fd, 65_536):
                with self._lock:
                    self.output += data
        except OSError:
            pass  # a terminal whose last program has ended
        finally:
            os.close(fd)

    @property
    def text(self) -> str:
        return self.output.decode(errors="replace").replace("\r\n", "\n")

    def wait_for(self, text: str, times: int = 1) -> None:
        until(
            lambda: self.text.count(text) >= times or self.process.poll() is not None,
            f"{text!r} in {self.text}",
        )
        until(lambda: self.text.count(text) >= times or not self.reading, "the end of the output")
        assert self.text.count(text) >= times, self.text

    @property
    def reading(self) -> bool:
        return any(reader.is_alive() for reader in self._readers)

    def workers(self) -> list[int]:
        """The processes of all lives that have begun."""
        return [int(pid) for pid in re.findall(r"started as process (\d+)", self.text)]

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> int:
        """The exit code, once it has ended; none of its workers may be left by then."""
        code = self.process.wait(PATIENCE)
        left = [pid for pid in self.workers() if is_running(pid)]
        for reader in self._readers:
            reader.join(PATIENCE)
        assert not left, self.text
        assert not [pid for pid in self.workers() if is_running(pid)], self.text
        return code


Launch = Callable[..., Launcher]


@pytest.fixture
def launched() -> Iterator[list[Launcher]]:
    running: list[Launcher] = []
    yield running
    for each in running:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()
            for pid in each.workers():
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
        sys.stdout.write(each.text)  # shown if the test has failed


@pytest.fixture
def launch(launched: list[Launcher]) -> Launch:
    """Run ``hexdigest-shard run`` with the given words, on pipes."""

    def start(
        *words: str, environ: dict[str, str] | None = None, wrap: tuple[str, ...] = ()
    ) -> Launcher:
        process = subprocess.Popen(
            [*wrap, sys.executable, "-m", "scrapy_hexshard", "run", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**CLEAN, **(environ or {})},
        )
        assert process.stdout is not None
        assert process.stderr is not None
        outputs = [os.dup(stream.fileno()) for stream in (process.stdout, process.stderr)]
        process.stdout.close()
        process.stderr.close()
        launched.append(Launcher(process, *outputs))
        return launched[-1]

    return start


class Terminal:
    """A launcher on a terminal of its own, whose keys can be pressed."""

    def __init__(self, launcher: Launcher, keyboard: int) -> None:
        self.launcher = launcher
        self._keyboard = keyboard

    def press_ctrl_c(self) -> None:
        os.write(self._keyboard, b"\x03")

    def read(self) -> bytes:
        """What it shows next, where nobody else reads it."""
        return os.read(self._keyboard, 65_536)

    def resize(self, columns: int, lines: int) -> None:
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._keyboard, termios.TIOCSWINSZ, size)

    def close(self) -> None:
        """Close the window: the system hangs up on the launcher."""
        os.close(self._keyboard)


@pytest.fixture
def launch_on_terminal(launched: list[Launcher]) -> Callable[..., Terminal]:
    """Run ``hexdigest-shard run`` with the given words, as the foreground job of a terminal."""

    def start(
        *words: str,
        read: bool = True,
        environ: dict[str, str] | None = None,
        size: tuple[int, int] | None = None,
        stdout: int | None = None,
    ) -> Terminal:
        master, slave = pty.openpty()
        command = [*script("on_terminal.py"), sys.executable, "-m", "scrapy_hexshard", "run"]
        process = subprocess.Popen(
            [*command, *words],
            stdin=slave,
            stdout=slave if stdout is None else stdout,
            stderr=slave,
            env={**CLEAN, "TERM": "xterm", **(environ or {})},
        )
        # While somebody reads a terminal, closing it does not end it.
        launched.append(Launcher(process, master) if read else Launcher(process))
        terminal = Terminal(launched[-1], master)
        if size:
            terminal.resize(*size)
        os.close(slave)
        return terminal

    return start


@pytest.fixture(name="until")
def until_fixture() -> Callable[..., None]:
    """Wait until a condition holds; an AssertionError after a minute."""
    return until


@pytest.fixture(name="script")
def script_fixture() -> Callable[[str], tuple[str, str]]:
    """The command that runs a script of the workers folder."""
    return script


@pytest.fixture
def worker() -> tuple[str, str]:
    """The command of a worker that does what its further arguments say."""
    return script("worker.py")
