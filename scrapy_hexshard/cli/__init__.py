"""``hexdigest-shard``: one small module per command, imported only when it is used."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from scrapy_hexshard import __version__
from scrapy_hexshard.cli.process_one import heed_stop_signals
from scrapy_hexshard.cli.streams import drop_output, open_missing_streams
from scrapy_hexshard.errors import HexShardError, LaunchError

COMMANDS = ("run", "plan", "load", "status", "export", "owner")
EXIT_USAGE = 2
_EXIT_INTERRUPTED = 130
_POSIX_ONLY = ("fcntl", "termios")  # what the launcher and the store are built on
_EXIT_BROKEN_PIPE = 141  # as a shell shows a program that SIGPIPE ended


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``hexdigest-shard`` with *argv* (that of the process by default); returns the exit code.

    Usage errors raise SystemExit(2), as argparse does.
    """
    # First of all: the launcher has handlers of its own only once all that it needs is imported.
    heed_stop_signals()
    open_missing_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    words, command = split_command(words)
    try:
        arguments = _parse(words)
        arguments.worker_command = command
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except HexShardError as error:
        sys.stderr.write(f"hexdigest-shard: {error}\n")
        return error.exit_code if isinstance(error, LaunchError) else EXIT_USAGE
    except ModuleNotFoundError as error:
        if error.name not in _POSIX_ONLY:
            raise
        sys.stderr.write(
            "hexdigest-shard needs a POSIX system, such as Linux or macOS; on Windows, run it in "
            "WSL or a container.\n"
        )
        return EXIT_USAGE
    except BrokenPipeError:
        drop_output()
        return _EXIT_BROKEN_PIPE
    except OSError as error:  # such as standard output on a full disk
        drop_output()
        sys.stderr.write(f"hexdigest-shard: Cannot go on: {error}.\n")
        return EXIT_USAGE
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


def _parse(words: list[str]) -> argparse.Namespace:
    parser, commands = _parsers(words)
    named = words[0] if words else ""
    # So that files may stand on both sides of an option. With -- argparse would take this wrong.
    if named in commands and "--" not in words:
        arguments, unknown = commands[named].parse_known_intermixed_args(words[1:])
        if unknown:
            is_command = named == "run" and not unknown[0].startswith("-")
            hint = ". Write the workers' command after --." if is_command else ""
            commands[named].error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return arguments
    return parser.parse_args(words)


def _parser(words: list[str]) -> argparse.ArgumentParser:
    return _parsers(words)[0]


def _parsers(
    words: list[str],
) -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """The parser of all *words*, and by its name that of the command in them."""
    parser = argparse.ArgumentParser(
        prog="hexdigest-shard",
        description="Crawl a large list of keys with Scrapy on a fixed number of shards.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        choices=("bash", "zsh"),
        help="print the completion script of a shell (needs shtab)",
    )
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    named = words[0] if words else ""
    for name in (named,) if named in COMMANDS else COMMANDS:
        importlib.import_module(f"{__name__}.{name}").add_parser(subparsers)
    return parser, subparsers.choices


class _PrintCompletion(argparse.Action):
    """Prints the script and ends, as --version does, so that no command has to be named."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,  # noqa: ARG002 - argparse passes it
        values: Any,
        option_string: str | None = None,  # noqa: ARG002
    ) -> NoReturn:
        from scrapy_hexshard.cli.completion import completion_script  # noqa: PLC0415

        sys.stdout.write(completion_script(_parser([]), values) + "\n")
        parser.exit()
