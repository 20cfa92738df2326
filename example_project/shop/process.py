"""The shop as a process of its own, for the time of a ``with`` block."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class ShopError(Exception):
    """The shop could not be opened; it has said why on stderr."""


@contextmanager
def open_shop(*options: str) -> Iterator[str]:
    """The address of a shop started with *options*, those of ``python -m shop``.

    It closes at the end of the block, and also when this process is gone, however it went.
    """
    command = [sys.executable, "-m", "shop", "--until-stdin-closes", *options]
    with subprocess.Popen(
        command,
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C in a terminal is for the crawl, which needs the shop
    ) as process:
        assert process.stdout
        address = process.stdout.readline().strip()
        if not address:
            raise ShopError(f"The shop did not open with {' '.join(options)}.")
        try:
            yield address
        finally:
            process.terminate()
