"""Commands that do not crawl work as ever and leave the store alone."""

from __future__ import annotations

import pytest
from support.processes import CAN_BE_REACTORLESS, LOOPS

SPIDERS = '''
class Pages(scrapy.Spider):
    name = "pages"
    start_urls = [f"{ORIGIN}/ok?start"]

    def parse(self, response):
        """A contract.

        @url ORIGIN_URL
        @returns items 1 1
        """
        yield {"scraped": response.url}
'''

COMMANDS = {
    "fetch": (["fetch", "{origin}/page?b=fetched"], "fetched"),
    "fetch with a spider": (["fetch", "--spider=pages", "{origin}/page?b=fetched"], "fetched"),
    "parse": (["parse", "--spider=pages", "{origin}/ok?parsed"], "/ok?parsed"),
    "check": (["check", "pages"], "OK"),
    "shell": (["shell", "-c", "response.text", "{origin}/page?b=shelled"], "shelled"),
    "shell with a spider": (
        ["shell", "--spider=pages", "-c", "response.text", "{origin}/page?b=shelled"],
        "shelled",
    ),
    "view": (["view", "{origin}/page?b=viewed"], ""),
    "list": (["list"], "pages"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_leaves_the_bytes_of_the_store_as_they_are(project, command):
    arguments, shown = COMMANDS[command]
    project.write(SPIDERS.replace("ORIGIN_URL", f"{project.origin}/ok?contract"))
    project.load(f"{project.origin}/ok?1", f"{project.origin}/ok?2")
    before = project.bytes_of_store()
    assert before
    command_line = [argument.format(origin=project.origin) for argument in arguments]
    # Nothing to look at pages with; the browser is only told to open one.
    ended = project.run(*command_line, env={"BROWSER": "true"})
    assert ended.code == 0, ended.err
    assert shown in ended.out + ended.err
    assert "Traceback" not in ended.err
    assert project.bytes_of_store() == before


@pytest.mark.parametrize("command", ["fetch", "parse", "check", "shell"])
def test_a_command_does_not_make_a_store(project, command):
    arguments, _ = COMMANDS[command]
    project.write(SPIDERS.replace("ORIGIN_URL", f"{project.origin}/ok?contract"))
    project.run(*(argument.format(origin=project.origin) for argument in arguments))
    assert project.bytes_of_store() == {}


@pytest.mark.parametrize("loop", ["default", "reactorless"])
@pytest.mark.parametrize("command", ["fetch", "parse"])
def test_a_command_leaves_the_store_alone_on_any_event_loop(project, loop, command):
    if loop == "reactorless" and not CAN_BE_REACTORLESS:
        pytest.skip("this Scrapy cannot download without a reactor here")
    arguments, shown = COMMANDS[command]
    project.write(SPIDERS)
    project.load(f"{project.origin}/ok?1")
    before = project.bytes_of_store()
    command_line = [argument.format(origin=project.origin) for argument in arguments]
    ended = project.run(*command_line, *LOOPS[loop])
    assert shown in ended.out + ended.err
    assert project.bytes_of_store() == before


@pytest.mark.parametrize("command", ["fetch", "parse"])
def test_a_command_requests_what_another_shard_owns(project, command):
    arguments, shown = COMMANDS[command]
    project.write(SPIDERS)
    command_line = [argument.format(origin=project.origin) for argument in arguments]
    for shard in range(2):
        settings = ["-s", f"HEXSHARD_SHARD={shard}", "-s", "HEXSHARD_SHARDS=2"]
        assert shown in project.run(*command_line, *settings).out
