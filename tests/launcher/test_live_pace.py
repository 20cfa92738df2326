"""Rates over the last minutes, and the time that is left."""

from __future__ import annotations

import pytest

from scrapy_hexshard.launcher.live_pace import Course, Pace, Progress


def pace(*samples: tuple[float, int], window: float = 180.0) -> Pace:
    made = Pace(window)
    for now, count in samples:
        made.add(now, count)
    return made


def test_a_rate_is_taken_from_all_that_was_seen():
    assert pace((0, 0), (10, 5), (20, 30)).per_minute == 90.0


def test_there_is_no_rate_from_less_than_three_seconds():
    assert pace().per_minute is None
    assert pace((5, 7)).per_minute is None
    assert pace((0, 0), (2.9, 5)).per_minute is None
    assert pace((0, 0), (3, 5)).per_minute == 100.0


def test_the_time_before_the_first_step_does_not_count():
    starting = [(second, 100) for second in range(60)]
    assert pace(*starting, (60, 110), (69, 200)).per_minute == 600.0


def test_what_is_older_than_the_window_is_forgotten():
    fast = [(second, 100 * second) for second in range(100)]
    slow = [(100 + second, 10_000 + second) for second in range(200)]
    assert pace(*fast, *slow, window=100).per_minute == 60.0


def test_a_count_that_stands_comes_to_a_rate_of_zero():
    still = [(10 + second, 50) for second in range(200)]
    assert pace((0, 0), (10, 50), *still, window=100).per_minute == 0.0


def test_a_count_that_falls_is_no_negative_rate():
    assert pace((0, 50), (10, 60), (20, 10)).per_minute == 0.0


def test_a_count_is_still_when_it_has_not_changed_for_a_minute():
    seen = pace((0, 0), (30, 1), (89, 1))
    assert not seen.is_still(89.9)
    assert seen.is_still(90)
    seen.add(91, 2)
    assert not seen.is_still(91)
    assert not Pace().is_still(1_000)


def test_a_count_that_never_moved_is_still_too():
    assert pace((0, 0), (30, 0), (60, 0)).is_still(60)


def follow(course: Course, seconds: range, running: int = 8, keys: int | None = 1_000) -> Progress:
    """A crawl that ends two keys a second."""
    for second in seconds:
        ended = 2 * second
        progress = course.look(
            float(second),
            ended=ended,
            moves=3 * second,
            running=running,
            keys=keys,
            open_=None if keys is None else keys - ended,
        )
    return progress


def test_the_time_left_follows_from_the_rate_and_what_is_open():
    assert follow(Course(), range(101)) == Progress(
        seconds=100.0,
        ended=200,
        keys=1_000,
        open=800,
        per_minute=120.0,
        eta=400.0,
        stalled=False,
    )


def test_the_time_left_is_not_guessed_from_less_than_thirty_seconds():
    assert follow(Course(), range(30)).eta is None
    assert follow(Course(), range(31)).eta == 470.0


def test_without_the_number_of_keys_there_is_a_rate_and_no_time_left():
    progress = follow(Course(), range(101), keys=None)
    assert (progress.per_minute, progress.eta, progress.share) == (120.0, None, None)


def test_nothing_is_left_when_nothing_is_open():
    progress = follow(Course(), range(501))
    assert (progress.open, progress.eta, progress.share) == (0, None, 1.0)


@pytest.mark.parametrize(("running", "stalled"), [(8, True), (0, False)])
def test_a_crawl_stalls_when_nothing_moves_although_keys_are_running(running, stalled):
    course = Course()
    follow(course, range(31))
    for second in range(31, 90):
        assert not course.look(second, ended=60, moves=90, running=running).stalled
    assert course.look(90, ended=60, moves=90, running=running).stalled is stalled
    assert not course.look(91, ended=60, moves=91, running=running).stalled


def test_a_crawl_without_keys_has_no_share_that_is_through():
    assert Progress(0.0, 0, keys=0, open=0).share is None
    assert Progress(0.0, 5, keys=20, open=15).share == 0.25
