"""``scrapy shard``: another name for ``hexdigest-shard``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.commands import ScrapyCommand

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


class ShardCommand(ScrapyCommand):
    """Hands everything after ``scrapy shard`` on, as it is written.

    Scrapy makes one at each of its starts, so that the commands are imported only when one runs.
    """

    requires_crawler_process = False

    def syntax(self) -> str:
        return "COMMAND [options] [-- command [argument ...]]"

    def short_desc(self) -> str:
        return "Crawl on shards: run, plan, load, status, export, owner (as hexdigest-shard)"

    def add_options(self, parser: ArgumentParser) -> None:
        # None of Scrapy's own options: they belong to the crawl after --. An option before all else
        # is left over by Scrapy's parser, -h only if it is no option of that parser's.
        parser.add_argument("-h", "--help", action="store_true", dest="asks_help")
        parser.add_argument("words", nargs="...")
        parser.set_defaults(profile=None)

    def process_options(self, args: list[str], opts: Namespace) -> None:
        """No setting is changed."""

    def run(self, args: list[str], opts: Namespace) -> None:
        """Run the command; raises SystemExit for wrong usage."""
        from scrapy_hexshard.cli import main  # noqa: PLC0415

        self.exitcode = main([*(["--help"] if opts.asks_help else []), *args, *opts.words])
