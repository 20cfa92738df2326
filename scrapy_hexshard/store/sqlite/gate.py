"""One writer at a time, in turn, over all processes: a lock on a file beside the database.

SQLite's own waiting is polling, which starves some of many writers. The lock must not be on the
database itself: closing any descriptor of that file drops the locks SQLite holds on it.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path
from queue import SimpleQueue

from scrapy_hexshard.errors import StoreUnavailableError

# Most holders are through within a millisecond or two. To have a thread woken for each of them
# leaves the lock idle for about as long again.
TRIES = 20
TRY_SECONDS = 0.0001


class Gate:
    """The lock; *patience* is in seconds. ``waited`` is the total time spent waiting for it."""

    def __init__(self, path: Path, patience: float) -> None:
        self.path = path
        self.patience = patience
        self.waited = 0.0
        self._descriptor = _open(path)
        self._waiter: _Waiter | None = None

    def acquire(self) -> None:
        """Take the lock; raises StoreUnavailableError when it takes longer than the patience."""
        while True:
            # The lock belongs to the descriptor, not to a thread: one that still waits for a call
            # that gave up would release it again under this one.
            if self._is_awaited() or not self._taken_soon():
                self._wait()
            if self._is_current():
                return
            # Somebody deleted the file: those who come later meet at the new one.
            self._reopen()

    def release(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file; the gate is not used any more."""
        if self._waiter is not None and not self._waiter.stop():
            return  # it still waits for the lock, and closes the file once it has it
        os.close(self._descriptor)

    def close_in_child(self) -> None:
        """After a fork: a copy of the descriptor would keep the parent's lock if that dies."""
        os.close(self._descriptor)

    def _taken_soon(self) -> bool:
        if _taken_at_once(self._descriptor):
            return True
        started = time.monotonic()
        try:
            for _ in range(TRIES):
                time.sleep(TRY_SECONDS)
                if _taken_at_once(self._descriptor):
                    return True
        finally:
            self.waited += time.monotonic() - started
        return False

    def _wait(self) -> None:
        if self._waiter is None:
            self._waiter = _Waiter(self._descriptor)
        started = time.monotonic()
        try:
            taken = self._waiter.wait(self.patience)
        finally:
            self.waited += time.monotonic() - started
        if not taken:
            raise StoreUnavailableError(
                f"Another process has held {self.path} for {self.patience:g} seconds"
                f"{_holder(self.path)}. Look whether it hangs, stop it, and start again."
            )

    def _is_awaited(self) -> bool:
        return self._waiter is not None and self._waiter.asked

    def _is_current(self) -> bool:
        try:
            named = self.path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(self._descriptor))

    def _reopen(self) -> None:
        descriptor = _open(self.path)
        self.close()
        self._descriptor, self._waiter = descriptor, None


class _Waiter:
    """A thread that waits in flock(), which knows no time-out, so that its caller may give up."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._changed = threading.Condition()
        self._requests: SimpleQueue[bool] = SimpleQueue()
        self._asked = False
        self._wanted = False
        self._taken = False
        self._stopped = False
        threading.Thread(target=self._run, name="hexshard-gate", daemon=True).start()

    @property
    def asked(self) -> bool:
        """Whether it waits for the lock, be it for a caller that gave up."""
        with self._changed:
            return self._asked

    def wait(self, patience: float) -> bool:
        """Whether the lock was taken within *patience* seconds."""
        with self._changed:
            self._wanted = True
            if not self._asked:
                self._asked = True
                self._requests.put(True)
            try:
                self._changed.wait_for(lambda: self._taken, patience)
                taken, self._taken = self._taken, False
            except BaseException:
                if self._taken:
                    self._taken = False
                    fcntl.flock(self._descriptor, fcntl.LOCK_UN)
                raise
            finally:
                self._wanted = False
            return taken

    def stop(self) -> bool:
        """End the thread; False if it still waits for the lock: the descriptor is its own then."""
        with self._changed:
            self._stopped = True
            self._requests.put(False)
            return not self._asked

    def _run(self) -> None:
        while self._requests.get():
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            with self._changed:
                self._asked = False
                if self._stopped:
                    os.close(self._descriptor)
                elif self._wanted:
                    self._taken = True
                    self._changed.notify()
                else:
                    fcntl.flock(self._descriptor, fcntl.LOCK_UN)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise StoreUnavailableError(
            f"Cannot open {path}: {error.strerror}. See that its folder exists and this user may "
            "write there."
        ) from None


def _taken_at_once(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(path: Path) -> str:
    """Who holds a lock on the file, as far as the kernel tells; see proc_locks(5)."""
    try:
        inode = path.stat().st_ino
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return ""
    for line in lines:
        fields = line.split()
        if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
            return f" (process {fields[4]})"
    return ""
