"""``hexdigest-shard``: one small module per command, imported only when it is used."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from scrapy_hexshard import __version__
from scrapy_hexshard.errors import HexShardError, LaunchError

COMMANDS = ("run", "load", "status", "export", "owner")
EXIT_USAGE = 2
_EXIT_INTERRUPTED = 130
_EXIT_BROKEN_PIPE = 141  # as a shell shows a program that SIGPIPE ended


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``hexdigest-shard`` with *argv* (that of the process by default); returns the exit code.

    Usage errors raise SystemExit(2), as argparse does.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    words, command = split_command(words)
    arguments = _parser(words).parse_args(words)
    arguments.worker_command = command
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except HexShardError as error:
        sys.stderr.write(f"hexdigest-shard: {error}\n")
        return error.exit_code if isinstance(error, LaunchError) else EXIT_USAGE
    except BrokenPipeError:
        # Python flushes once more as it ends, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return _EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    return code


def split_command(words: list[str]) -> tuple[list[str], tuple[str, ...] | None]:
    """The words of ``run`` before the first ``--`` and the worker's command after it.

    argparse must not look into that command. Other commands have none.
    """
    if words[:1] != ["run"] or "--" not in words:
        return words, None
    at = words.index("--")
    return words[:at], tuple(words[at + 1 :])


def _parser(words: list[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hexdigest-shard",
        description="Crawl a large list of keys with Scrapy on a fixed number of shards.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    named = words[0] if words else ""
    for name in (named,) if named in COMMANDS else COMMANDS:
        importlib.import_module(f"{__name__}.{name}").add_parser(subparsers)
    return parser
