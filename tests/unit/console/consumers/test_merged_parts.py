"""The lines of a log with their controls and without their end, as often as a page can show them."""

from __future__ import annotations

import pytest

from console.live.merged_lines import LAST, NOTE, OPEN
from console.live.merged_parts import REST_S, PartFeeder, as_written
from console.live.tails import Piece
from tests.harness.tqdm_output import ONE_BAR, TWO_LEVELS

T = 1_700_000_000.0


def feeder(end=0):
    return PartFeeder(0, end, T)


def fed(log, data, now):
    lines = log.feed(Piece(log.taken, log.taken + len(data), data))
    return [(line.text, line.kind) for line in [*lines, *log.rest(now)]]


def test_a_line_that_waits_for_its_end_is_given_after_a_while():
    log = feeder()
    assert fed(log, b"one\nLoading", 0) == [("one", "")]
    assert log.due_at() == REST_S
    assert fed(log, b"", REST_S) == [("Loading", OPEN)]
    assert fed(log, b" done\nnext\n", 2 * REST_S) == [(" done", ""), ("next", "")]
    assert log.end == len("one\nLoading done\nnext\n")


def test_a_line_that_comes_in_two_pieces_is_one():
    log = feeder()
    assert fed(log, b"hal", 0) == []
    assert fed(log, b"f\n", 0.1) == [("half", "")]


def test_a_bar_is_given_at_once_and_then_rests():
    log = feeder()
    assert fed(log, b"\r 10%", 7) == [("\r 10%", OPEN)]
    assert log.rests_until == 7 + REST_S == log.due_at()
    assert fed(log, b"\r 20%\r 30%", 8) == [("\r 30%", OPEN)]
    assert fed(log, b"\r100%\r\nafter\n", 9) == [("\r100%", ""), ("after", "")]
    assert fed(log, b"calm\n", 10) == [("calm", "")]
    assert log.rests_until == 0


def test_where_the_cursor_goes_up_nothing_is_left_out():
    log, texts = feeder(), ""
    for at in range(0, len(TWO_LEVELS), 100):
        for text, kind in fed(log, TWO_LEVELS[at : at + 100], at):
            texts += text + ("" if kind == OPEN else "\n")
        assert log.rests_until == at + REST_S
    assert texts.count("\x1b[A") == TWO_LEVELS.count(b"\x1b[A")
    assert texts.endswith("\n") and log.end == len(TWO_LEVELS)


def test_an_escape_may_come_in_two_parts():
    log = feeder()
    assert fed(log, b"\r 10%\x1b[", 0) == [("\r 10%\x1b[", OPEN)]
    assert fed(log, b"A\r 20%\r", 1) == [("A\r 20%\r", OPEN)]
    assert fed(log, b"x\ra\rb\rc\n", 2) == [
        ("x\ra\rb\rc", ""),
    ]
    assert fed(log, b"a\rb\rc\n", 3) == [("\rc", "")]


def test_of_one_bar_only_the_last_state_is_given():
    assert fed(feeder(), ONE_BAR, 0) == [("\r" + ONE_BAR.decode().strip().rpartition("\r")[2], "")]


@pytest.mark.parametrize("letter", ["é", "€", "😀"])
def test_letters_are_whole(letter):
    data = f"\r{letter}{letter}".encode()
    for size in range(1, len(data)):
        log = feeder()
        first = fed(log, data[:size], 0)
        rest = fed(log, data[size:], 9) + fed(log, b"", 10)
        assert "".join(text for text, _ in first + rest).replace("\r", "") == letter * 2
    assert fed(feeder(), b"\r\xff\xfe", 0) == [("\r\ufffd\ufffd", OPEN)]


def test_the_last_line_ends_without_a_line_feed():
    log = feeder()
    fed(log, b"\r 90%", 0)
    assert [(line.text, line.kind, line.end) for line in log.finish()] == [("", LAST, 5)]
    assert log.finish() == []
    log = feeder()
    fed(log, b"the end", 0)
    assert [(line.text, line.kind) for line in log.finish()] == [("the end", LAST)]


def test_a_gap_is_said():
    log = feeder()
    fed(log, b"\r 90%", 0)
    lines = log.feed(Piece(5, 25, b"", "the host's log was cut"))
    assert [(line.text, line.kind) for line in lines] == [
        ("", LAST),
        ("20 bytes are missing: the host's log was cut", NOTE),
    ]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"plain\r\n", "plain"),
        (b"a\rb\rc\r\n", "\rc"),
        (b"a\rb\r", "\rb\r"),
        (b"\x1b[31ma\rb\n", "\x1b[31ma\rb"),
        (b"a\r\x1b[Kb\n", "\r\x1b[Kb"),
        (b"\x1b[Aa\n", "\x1b[Aa"),
    ],
)
def test_only_what_a_return_replaces_is_left_out(line, text):
    assert as_written(line) == text
