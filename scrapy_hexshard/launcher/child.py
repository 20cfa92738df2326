"""One life of a worker as a process of the operating system."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from contextlib import ExitStack, suppress

from scrapy_hexshard.launcher.plan import ProcessSpec
from scrapy_hexshard.launcher.zombies import holds_zombies_alone
from scrapy_hexshard.pipes import LIFELINE_VARIABLE, STATUS_VARIABLE, describe_descriptor


class Child:
    """A worker process, the leader of a session and process group of its own.

    Its life goes on until the whole group has ended. Signals go to the leader while it lives, as
    that knows best what to do with its own children, and then to what is left of the group.
    """

    def __init__(self, process: subprocess.Popen[bytes], output: int, status: int) -> None:
        self._process = process
        self.pid = process.pid
        self.output = output  # read end of its standard output and error; the reader closes it
        self.status = status  # read end of its status pipe, non-blocking; close() closes it
        self.returncode: int | None = None

    @classmethod
    def start(cls, spec: ProcessSpec, lifeline: int) -> Child:
        """Start *spec*, with the read end of a *lifeline*; raises OSError if that fails."""
        with ExitStack() as kept, ExitStack() as handed_over:
            status, status_of_child = _pipe(kept, handed_over)
            output, output_of_child = _pipe(kept, handed_over)
            os.set_blocking(status, False)
            try:
                process = subprocess.Popen(  # noqa: S603 - the user's own command, without a shell
                    spec.argv,
                    env={
                        **spec.environ,
                        LIFELINE_VARIABLE: describe_descriptor(lifeline),
                        STATUS_VARIABLE: describe_descriptor(status_of_child),
                    },
                    stdin=subprocess.DEVNULL,
                    stdout=output_of_child,
                    stderr=subprocess.STDOUT,
                    pass_fds=(lifeline, status_of_child),
                    start_new_session=True,
                )
            except ValueError:  # its text, and that of a UnicodeError, may hold a secret
                reason = "its command or environment holds what the system's encoding cannot write"
                raise OSError(errno.EINVAL, reason) from None
            kept.pop_all()
        return cls(process, output, status)

    @property
    def leader_lives(self) -> bool:
        """Whether the leader was still there at the last call of ended()."""
        return self.returncode is None

    def ended(self) -> bool:
        """Whether the leader has ended; the first time, the rest of its group is told to stop."""
        if self.leader_lives and self._has_exited():
            # Until the leader is reaped, no other group can have come by its number.
            self._signal_group(signal.SIGTERM)
            self.returncode = self._process.wait()
        return not self.leader_lives

    def group_is_empty(self) -> bool:
        """Whether nothing of the group is left; asks for a leader that has ended."""
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:  # it goes on as another user
            return False
        # Where process 1 reaps nobody, they would stay for ever.
        return holds_zombies_alone(self.pid)

    def terminate(self) -> None:
        """Send one SIGTERM."""
        if self.leader_lives:
            # Not Popen.send_signal(), which reaps the leader in passing.
            with suppress(OSError):
                os.kill(self.pid, signal.SIGTERM)
        else:
            self._signal_group(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the whole group."""
        self._signal_group(signal.SIGKILL)

    def abandon(self) -> None:
        """Kill it at once, and forget it with all its output."""
        self.kill()
        self._process.wait()
        os.close(self.output)
        self.close()

    def read_status(self) -> bytes:
        """What has come up the status pipe; nothing when it is empty, or at its end."""
        with suppress(BlockingIOError):
            return os.read(self.status, 65_536)
        return b""

    def close(self) -> None:
        """Close the status pipe."""
        os.close(self.status)

    def _has_exited(self) -> bool:
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return self._process.poll() is not None
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, options) is not None

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(OSError):
            os.killpg(self.pid, number)


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """A new pipe, each end of which is closed when its stack is."""
    read, write = os.pipe()
    reader.callback(os.close, read)
    writer.callback(os.close, write)
    return read, write


def reap_stranger(own: set[int]) -> bool:
    """Reap one ended process that is a child of this one but not of its making.

    As process 1 of a container the launcher inherits every orphan, and would keep them as zombies.
    """
    if os.getpid() != 1:
        return False
    with suppress(ChildProcessError):
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is not None and ended.si_pid not in own:
            os.waitpid(ended.si_pid, 0)
            return True
    return False
