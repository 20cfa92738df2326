"""The view as rich draws it: what is where, and in which colours."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from scrapy_hexshard.launcher.live_layout import Painter
from scrapy_hexshard.launcher.live_pace import Progress
from scrapy_hexshard.launcher.live_workers import ShardSight, Sight
from scrapy_hexshard.launcher.reports import Totals

STYLE = re.compile(r"\x1b\[([\d;]*)m")
PROGRESS = Progress(754.0, 5_326, 65_920, 60_594, 18_770.0, 194.0)


def shards(number: int) -> list[ShardSight]:
    totals = Totals(done=1_052, failed=3, dead=1)
    seen = [ShardSight(each, "running", 16, totals, 609.4, 0, "") for each in range(number)]
    seen[-1] = ShardSight(number - 1, "failed", 0, Totals(), None, 2, "SIGKILL")
    return seen


def drawn(sight: Sight, width: int = 80, height: int = 24, **options: object) -> list[str]:
    console = Console(
        file=io.StringIO(),
        force_terminal=True,
        color_system="standard",
        markup=False,
        highlight=False,
        emoji=False,
        **options,
    )
    return Painter(console).lines(sight.picture(height), width, height)


def plain(lines: list[str]) -> list[str]:
    return [STYLE.sub("", line).rstrip() for line in lines]


def test_the_whole_view_at_80_columns():
    assert plain(drawn(Sight(PROGRESS, shards(4)))) == [
        "shard  state    running   done  failed  dead  pages/min  restarts  last error",
        "    0  running       16  1,052       3     1        609         0",
        "    1  running       16  1,052       3     1        609         0",
        "    2  running       16  1,052       3     1        609         0",
        "    3  failed         0      0       0     0          -         2  SIGKILL",
        "total                48  3,156       9     3      1,828         2",
        "━╺━━━━━━━━━━━  8.0 %  5,326 of 65,920 keys  18,770 keys/min  ETA 3 min  0:12:34",
    ]


def test_the_bar_is_longer_where_there_is_room():
    bar = plain(drawn(Sight(PROGRESS, shards(4)), 200))[-1].split("  ")[0]
    assert bar == "━" * 3 + "╺" + "━" * 36


@pytest.mark.parametrize("known", [True, False])
def test_what_matters_most_is_said_where_there_is_little_room(known):
    progress = PROGRESS if known else Progress(754.0, 5_326, None, None, 18_770.0, None)
    said = [plain(drawn(Sight(progress, shards(2)), width))[-1] for width in (80, 60, 40, 30, 20)]
    if known:
        assert [line.split("━  ")[-1] for line in said] == [
            "8.0 %  5,326 of 65,920 keys  18,770 keys/min  ETA 3 min  0:12:34",
            "8.0 %  5,326 of 65,920 keys  ETA 3 min",
            "8.0 %  ETA 3 min",
            "8.0 %  ETA 3 min",
            "8.0 %",
        ]
    else:
        assert said == [
            "5,326 keys ended  18,770 keys/min  0:12:34",
            "5,326 keys ended  18,770 keys/min  0:12:34",
            "5,326 keys ended  18,770 keys/min",
            "5,326 keys ended",
            "5,326 keys ended",
        ]


@pytest.mark.parametrize("width", [1, 2, 5, 12, 30, 60, 80, 200])
@pytest.mark.parametrize("height", [1, 7, 9, 24, 60])
@pytest.mark.parametrize("number", [1, 4, 64])
def test_it_fits_every_terminal(width, height, number):
    seen = shards(number)
    seen[0] = ShardSight(0, "running", 1, Totals(), None, 0, "商品" * 300)
    lines = drawn(Sight(PROGRESS, seen), width, height)
    assert len(lines) < max(2, height)
    assert all(cell_len(line) < max(2, width) for line in plain(lines))


def test_only_the_terminals_own_colours_are_used():
    lines = drawn(Sight(PROGRESS, shards(4)))
    codes = {code for line in lines for code in ";".join(STYLE.findall(line)).split(";")}
    assert codes == {"0", "1", "2", "31", "32", "35", "90"}
    assert "\x1b[1;31mfailed" in lines[4]


def test_without_colour_nothing_but_weight_is_left():
    lines = drawn(Sight(PROGRESS, shards(4)), no_color=True)
    codes = {code for line in lines for code in ";".join(STYLE.findall(line)).split(";")}
    assert codes <= {"", "0", "1", "2"}
    # The rest of the bar, which only its colour tells apart, is left out.
    assert plain(lines)[-1].startswith("━  ")
