"""The view stands below all lines, which are whole, each once, and in order."""

from __future__ import annotations

import os
import pty
import random

import pytest
from support.terminal import Terminal

from scrapy_hexshard.launcher.live_screen import Screen, can_draw, harmless, terminal_size


class Drawing:
    """A screen on a terminal, with a view of as many lines as asked for."""

    def __init__(self, columns: int = 20, lines: int = 10) -> None:
        self.terminal = Terminal(columns, lines)
        self.view = ["view 0"]
        self.screen = Screen(
            lambda columns, _: [line[: columns - 1] for line in self.view],
            lambda: (self.terminal.columns, self.terminal.lines),
        )

    def paint(self, lines: str = "", **options: bool) -> None:
        self.terminal.feed(self.screen.paint(lines.encode(), **options))
        assert self.terminal.column == 0
        assert not self.terminal.styled

    @property
    def text(self) -> list[str]:
        return self.terminal.text


def test_the_bytes_of_a_view_and_of_the_next_one():
    screen = Screen(lambda columns, lines: [f"{columns}", f"{lines}"], lambda: (80, 24))
    assert screen.paint() == b"\r\x1b[K80\n\x1b[K24\n\x1b[J"
    assert screen.paint() == b"\r\x1b[2A\x1b[K80\n\x1b[K24\n\x1b[J"
    assert screen.paint(b"line\n") == b"\r\x1b[2A\x1b[Jline\n\x1b[K80\n\x1b[K24\n\x1b[J"
    assert screen.clear() == b"\r\x1b[2A\x1b[J"
    assert screen.clear() == b"\r\x1b[J"


def test_a_view_takes_the_place_of_the_last_one_whatever_their_heights():
    drawing = Drawing()
    for height in (3, 1, 5, 2, 0, 4):
        drawing.view = [f"view {number}" for number in range(height)]
        drawing.paint()
        assert drawing.text == drawing.view


def test_lines_go_by_above_and_a_view_is_only_made_anew_when_asked_for():
    drawing = Drawing()
    drawing.paint("one\n")
    drawing.view = ["view 1", "more"]
    drawing.paint("two\nthree\n", anew=False)
    assert drawing.text == ["one", "two", "three", "view 0"]
    drawing.paint("four\n")
    assert drawing.text == ["one", "two", "three", "four", "view 1", "more"]
    drawing.terminal.feed(drawing.screen.clear())
    assert drawing.text == ["one", "two", "three", "four"]


@pytest.mark.parametrize("seed", range(20))
def test_lines_of_every_length_are_whole_and_in_order(seed):
    dice = random.Random(seed)
    drawing = Drawing(columns=20, lines=12)
    written = []
    for number in range(60):
        drawing.view = ["v" * dice.randrange(40) for _ in range(dice.randrange(8))]
        lines = [f"{number}:" + "x" * dice.randrange(70) for _ in range(dice.randrange(5))]
        drawing.paint("".join(f"{line}\n" for line in lines), anew=dice.random() < 0.5)
        written += lines
    drawing.view = []
    drawing.paint()
    broken = [line[at : at + 20] for line in written for at in range(0, len(line), 20)]
    assert drawing.text == broken


@pytest.mark.parametrize("columns", [7, 12, 19, 30])
def test_a_terminal_that_becomes_narrower_or_wider_keeps_lines_and_shows_one_view(columns):
    drawing = Drawing(columns=20, lines=30)
    drawing.view = ["#" * 40, "=" * 40, "u"]
    drawing.paint("line one\nline two\n")
    drawing.terminal.resize(columns, 30)
    drawing.paint("end\n", anew=False)
    assert "".join(drawing.text).replace("#", "").replace("=", "") == "line oneline twoendu"
    assert drawing.text[-3:] == ["#" * (columns - 1), "=" * (columns - 1), "u"]
    assert "".join(drawing.text).count("#") == columns - 1


def test_what_others_wrote_in_between_is_left_alone():
    drawing = Drawing()
    drawing.paint("line\n")
    drawing.terminal.feed(b"[1]+  Stopped\n$ fg\nhexdigest-shard run\n")
    drawing.screen.lost = True
    drawing.paint()
    drawing.paint()
    expected = ["line", "view 0", "[1]+  Stopped", "$ fg", "hexdigest-shard run", "view 0"]
    assert drawing.text == expected


def test_a_key_that_was_echoed_below_the_view_is_gone_with_the_next_one():
    drawing = Drawing()
    drawing.paint("line\n")
    drawing.terminal.feed(b"^C")
    drawing.paint()
    assert drawing.text == ["line", "view 0"]


def test_a_terminal_that_has_gone_gets_no_view():
    screen = Screen(lambda columns, lines: ["view"], lambda: None)
    assert b"view" not in screen.paint(b"line\n")
    assert b"view" not in screen.paint()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("plain é 商\n", "plain é 商\n"),
        ("a\tb\n", "a\tb\n"),
        ("\x1b[31mred\n", "\x1b[31mred\x1b[m\n"),
        ("\x1b[1;32mgreen\x1b[0m\n", "\x1b[1;32mgreen\x1b[0m\x1b[m\n"),
        ("10 %\r20 %\n", "10 %?20 %\n"),
        ("\x1b[2J\x1b[H\x1b[?1049h\n", "?[2J?[H?[?1049h\n"),
        ("\x1b]0;title\x07\n", "?]0;title?\n"),
        ("\x9b2J\x7f\x00\n", "?2J??\n"),
    ],
)
def test_lines_cannot_paint_over_the_view(line, shown):
    assert harmless(line) == shown


def test_bytes_that_are_no_text_do_no_harm():
    drawing = Drawing()
    drawing.terminal.feed(drawing.screen.paint(bytes(range(256)) + b"\n"))
    assert drawing.text[-1] == "view 0"


def test_a_view_is_drawn_on_a_terminal_that_nobody_else_writes_to(tmp_path):
    ours, terminal = pty.openpty()
    read, write = os.pipe()
    with (tmp_path / "file").open("wb") as file:
        xterm = {"TERM": "xterm"}
        assert can_draw(terminal, terminal, xterm)
        assert can_draw(file.fileno(), terminal, xterm)
        assert not can_draw(write, terminal, xterm)
        assert not can_draw(terminal, write, xterm)
        assert not can_draw(terminal, file.fileno(), xterm)
        for environ in ({}, {"TERM": ""}, {"TERM": "dumb"}, {"TERM": "unknown"}):
            assert not can_draw(terminal, terminal, environ)
    for fd in (ours, terminal, read, write):
        os.close(fd)


def test_the_size_of_a_terminal_without_one_is_guessed(monkeypatch):
    ours, terminal = pty.openpty()
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    assert terminal_size(terminal) == (80, 24)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "x")
    assert terminal_size(terminal) == (100, 24)
    for fd in (ours, terminal):
        os.close(fd)
    assert terminal_size(terminal) is None
