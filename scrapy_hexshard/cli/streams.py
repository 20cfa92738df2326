"""The standard streams, fit to be written to however the program was started."""

from __future__ import annotations

import io
import os
import sys


def open_missing_streams() -> None:
    """Open what is missing of descriptors 0 to 2, and of sys.stdout and sys.stderr, to nowhere.

    For those who must know, sys.stdin and sys.__stdout__ stay None.
    """
    # The descriptors first, so that no other file is mistaken for them.
    fd = os.open(os.devnull, os.O_RDWR)
    while fd <= 2:
        fd = os.dup(fd)
    os.close(fd)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)
    # A key may hold any character, and a terminal may know few.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def drop_output() -> None:
    """Give up what standard output still holds: Python writes it as it ends, and must not fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
