"""How numbers, times and progress are written."""

from __future__ import annotations

import pytest

from scrapy_hexshard.launcher import live_words as words
from scrapy_hexshard.launcher.live_pace import Progress


@pytest.mark.parametrize(
    ("per_minute", "text"),
    [
        *[(None, "-"), (0.0, "0"), (0.04, "0.0"), (1.26, "1.3"), (9.94, "9.9"), (9.96, "10")],
        *[(1234.5, "1,234"), (1_000_000.0, "1,000,000")],
    ],
)
def test_a_rate(per_minute, text):
    assert words.rate(per_minute) == text


def test_a_share_is_never_rounded_up():
    shares = [0.0, 0.0009, 0.29, 0.57, 0.99999, 1.0]
    assert list(map(words.percent, shares)) == [
        "0.0 %",
        "0.0 %",
        "29.0 %",
        "57.0 %",
        "99.9 %",
        "100.0 %",
    ]
    assert all(
        words.percent(1 - left / 1_000) == f"{(1_000 - left) / 10:.1f} %" for left in range(1_001)
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *[(0.4, "0 s"), (59.4, "59 s"), (60, "1 min"), (89, "1 min"), (3_569, "59 min")],
        *[(3_571, "1 h 0 min"), (3_600, "1 h 0 min"), (86_339, "23 h 59 min")],
        *[(86_399, "1 d 0 h"), (200_000, "2 d 8 h"), (86_400 * 1_234, "1,234 d 0 h")],
    ],
)
def test_a_time_to_come(seconds, text):
    assert words.about(seconds) == text


def test_a_time_gone_by():
    assert [words.elapsed(each) for each in (0, 59.9, 3_661, 360_000)] == [
        "0:00:00",
        "0:00:59",
        "1:01:01",
        "100:00:00",
    ]


def test_a_sentence_says_what_is_known():
    assert words.sentence(Progress(3.0, 12)) == "0:00:03: 12 keys ended."
    known = Progress(100.0, 200, keys=1_000, open=800, per_minute=120.0, eta=400.0)
    assert (
        words.sentence(known, "", "4 of 4 workers running")
        == "0:01:40: 200 of 1,000 keys (20.0 %), 120 a minute, ETA 7 min, 4 of 4 workers running."
    )
    stalled = Progress(100.0, 200, per_minute=0.0, eta=1.0, stalled=True)
    assert words.sentence(Progress(1.0, 0, keys=0, open=0)) == "0:00:01: no keys yet."
    assert words.sentence(stalled) == "0:01:40: 200 keys ended, 0 a minute, stalled."


def test_nothing_that_a_terminal_would_obey_is_printable():
    assert words.printable("a\x1b[2J\tb\x9b\u202ec é") == "a [2J b  c é"
