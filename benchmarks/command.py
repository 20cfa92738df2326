"""The command line that the benchmarks share."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from machine import data_folder, describe
from report import Section, table, write_into, write_json
from scale import FULL, QUICK, TINY, Scale

Benchmark = Callable[[Path, Scale], Section]


def run(
    script: str, about: str | None, benchmarks: Mapping[str, Benchmark], packages: Sequence[str]
) -> int:
    """Run the benchmarks that the command line names, and show each as it ends."""
    options = _options(about, benchmarks)
    sections = []
    for name in options.names or benchmarks:
        began = time.monotonic()
        sections.append(section := benchmarks[name](options.dir, options.scale))
        print(section.markdown())
        print(f"({name} took {time.monotonic() - began:.0f} s)\n", flush=True)
        if options.markdown:
            write_into(options.markdown, section)
    if options.markdown:
        facts = table(("", ""), describe(options.dir, packages))
        machine = Section(f"machine of {script}", f"The machine of {script}", facts)
        write_into(options.markdown, machine)
    if options.json:
        write_json(options.json, sections)
    return 0


def _options(about: str | None, benchmarks: Mapping[str, Benchmark]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about)
    add = parser.add_argument
    names = ", ".join(benchmarks)
    quick = "small sizes, a minute or two: to see the direction, not to quote"
    tiny = "smallest sizes, seconds: to see that it runs"
    add("names", nargs="*", metavar="NAME", help=f"some of: {names} (all)")
    add("--quick", dest="scale", action="store_const", const=QUICK, default=FULL, help=quick)
    add("--tiny", dest="scale", action="store_const", const=TINY, help=tiny)
    add("--dir", type=data_folder, default="bench-data", help="on a real disk (%(default)s)")
    add("--markdown", type=Path, metavar="PAGE", help="put what is found into this page, too")
    add("--json", type=Path, metavar="FILE", help="write the figures for a program to read, too")
    options = parser.parse_args()
    if unknown := set(options.names) - set(benchmarks):
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {names}")
    return options
