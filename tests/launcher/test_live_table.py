"""Which rows and columns are shown on a terminal of a given size."""

from __future__ import annotations

import pytest

from scrapy_hexshard.launcher.live_pace import Progress
from scrapy_hexshard.launcher.live_table import (
    Cell,
    Column,
    Picture,
    Tone,
    count,
    fold,
    lay_out,
    numbers,
    rows_for,
)


@pytest.mark.parametrize(
    ("shards", "most", "sizes"),
    [
        (0, 32, []),
        (1, 32, [1]),
        (32, 32, [1] * 32),
        (33, 32, [3] * 11),
        (64, 32, [4] * 16),
        (1_000, 32, [63] * 15 + [55]),
        (20, 16, [2] * 10),
        (20, 3, [7, 7, 6]),
        (3, 0, [3]),
    ],
)
def test_shards_are_folded_into_groups_of_neighbours(shards, most, sizes):
    groups = fold(range(shards), most)
    assert [len(group) for group in groups] == sizes
    assert [shard for group in groups for shard in group] == list(range(shards))


def test_there_are_never_more_rows_than_room():
    assert [rows_for(height) for height in (1, 8, 9, 24, 40, 41, 1_000)] == [
        0,
        0,
        1,
        16,
        32,
        32,
        32,
    ]
    for shards in range(200):
        for height in range(9, 60):
            assert len(fold(range(shards), rows_for(height))) <= rows_for(height)


def test_a_group_is_named_by_its_ends():
    assert [numbers([7]), numbers([4, 5, 6, 7])] == ["7", "4-7"]


def test_a_zero_is_quiet():
    assert count(0, Tone.CARE) == Cell("0", Tone.QUIET)
    assert count(1_234, Tone.CARE) == Cell("1,234", Tone.CARE)


COLUMNS = (Column("a", 0), Column("bb", 2), Column("c", 1), Column("text", 3, is_text=True))
ROWS = [
    [Cell("1"), Cell("2"), Cell("333", Tone.BAD), Cell("words of some length")],
    [Cell("10"), Cell("2"), Cell("3"), Cell("")],
]
TOTAL = [Cell("11"), Cell("4"), Cell("336"), Cell("")]


def text(rows: list[list[Cell]], width: int) -> list[str]:
    lines = lay_out(Picture(Progress(0.0, 0), COLUMNS, rows, TOTAL), width)
    return ["".join(cell.text for cell in line).rstrip() for line in lines]


def test_numbers_stand_right_and_text_left():
    assert text(ROWS, 80) == [
        " a  bb    c  text",
        " 1   2  333  words of some length",
        "10   2    3",
        "11   4  336",
    ]


def test_one_row_needs_no_total():
    assert text(ROWS[:1], 80) == ["a  bb    c  text", "1   2  333  words of some length"]


@pytest.mark.parametrize(
    ("width", "head"),
    [
        (23, " a  bb    c  text"),
        (22, " a  bb    c"),
        (11, " a  bb    c"),
        (10, " a    c"),
        (1, " a"),
    ],
)
def test_columns_that_do_not_fit_go_by_their_rank(width, head):
    assert text(ROWS, width)[0] == head


def test_tones_stay_and_head_and_total_stand_out():
    lines = lay_out(Picture(Progress(0.0, 0), COLUMNS, ROWS, TOTAL), 80)
    assert lines[1][2] == Cell("333  ", Tone.BAD)
    assert {cell.tone for line in (lines[0], lines[-1]) for cell in line} == {Tone.HEAD}
