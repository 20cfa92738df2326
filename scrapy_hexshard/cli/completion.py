"""``hexdigest-shard --print-completion``: the completion script of a shell, made by shtab."""

# ruff: noqa: SLF001 - argparse shows its parts nowhere else

from __future__ import annotations

import argparse
from collections.abc import Iterator

from scrapy_hexshard.errors import HexShardError

_FILES = {"FILE", "STORE"}
_FOLDERS = {"DIR"}


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script that completes the words of *parser*; raises HexShardError without shtab."""
    try:
        import shtab  # noqa: PLC0415
    except ImportError:
        raise HexShardError(
            "Completion needs shtab, which is not installed: pip install "
            "'scrapy-hexshard[completion]'."
        ) from None
    for action in _actions(parser):
        if action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in _FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    return shtab.complete(parser, shell)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for line in action._choices_actions:
                # What a shell shows beside a command is its description.
                action.choices[line.dest].description = line.help
                yield from _actions(action.choices[line.dest])
