"""``python -m shop``: opens the shop and prints its address."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from shop.server import serve


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m shop", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: one that is free (default)")
    parser.add_argument("--products", type=int, default=1000, metavar="N")
    parser.add_argument("--seed", type=int, default=1, help="another seed, another shop")
    parser.add_argument("--log", type=Path, metavar="FILE", help="access log, JSON lines")
    parser.add_argument(
        "--delay", type=float, default=0.0, metavar="SECONDS", help="before every answer"
    )
    parser.add_argument(
        "--reviews-fail-first",
        type=int,
        default=0,
        metavar="K",
        help="the first K requests for each product's reviews are answered 500",
    )
    parser.add_argument(
        "--until-stdin-closes", action="store_true", help="stop when stdin ends, too"
    )
    options = parser.parse_args()
    try:
        asyncio.run(serve(**vars(options)))
    except OSError as error:  # the port is taken, or the log cannot be written
        parser.exit(1, f"The shop cannot open: {error}.\n")


if __name__ == "__main__":
    main()
