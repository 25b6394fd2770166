"""Text of others does nothing to a terminal; keys are sent once, over any number of connections."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from console.client import tables, times
from console.client.errors import ClientError
from console.client.log_stream import Line
from console.client.text import cut, duration, harmless, width
from console.client.typed import AHEAD, MOST, Typed
from console.client.verbs import logs

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("plain ü 訓練\t.", "plain ü 訓練\t."),
        ("\x1b]0;title\x07", "^[]0;title^G"),
        ("\x1b[2J\x1b[H", "^[[2J^[[H"),
        ("\x1b[31mred", "red"),
        ("a\rb\nc", "a^Mb^Jc"),
        ("\x9b2J\x7f", "<U+009B>2J^?"),
        ("txt\u202eexe", "txt<U+202E>exe"),
        ("half \ud800", "half <U+D800>"),
    ],
)
def test_text_of_others_is_shown_and_obeyed_by_nobody(given, shown):
    assert harmless(given) == shown
    assert "\x1b" not in harmless(given)


def test_json_says_the_same_and_commands_no_terminal(capsys):
    text = "訓練 ü\x9b2J\x7f\u202e\x1b[2J\r\ud800"
    tables.print_json({text: [text]})
    shown = capsys.readouterr().out
    assert json.loads(shown) == {text: [text]} and "訓練 ü" in shown
    assert "\\u009b2J\\u007f\\u202e" in shown and harmless(shown.replace("\n", "")) == shown.replace("\n", "")


def test_lines_of_a_log_as_json_command_no_terminal(capsys):
    asked = SimpleNamespace(json=True, plain=False, timestamps=False)
    logs._printer(SimpleNamespace(args=asked), True)(Line("w", 1, 1, "h", 0.0, "\x9b2J\u202e", False))
    assert '"text": "\\u009b2J\\u202e"' in capsys.readouterr().out


def test_colours_of_a_program_are_kept_and_end_with_their_line():
    assert harmless("\x1b[31mred\x1b[2J", colours=True) == "\x1b[31mred^[[2J\x1b[0m"
    assert harmless("none\x1b]8;;x\x07", colours=True) == "none^[]8;;x^G"


def test_columns_are_counted_as_a_terminal_counts_them():
    assert width("訓練 a") == 6 and width("e\u0301") == 1
    assert cut("訓練訓練", 5) == "訓練…" and cut("abc", 3) == "abc"
    assert [duration(s) for s in (-1, 59, 61, 3700, 90000)] == ["0s", "59s", "1min 1s", "1h 1min", "1d 1h"]


def test_times_of_people_and_of_rest():
    assert times.parsed("2026-11-23T11:59:00.5Z") == datetime(2026, 11, 23, 11, 59, 0, 500000, tzinfo=UTC)
    assert times.parsed("2026-11-23T11:59:00.123456789Z").microsecond == 123456
    assert times.parsed("yesterday") is None and times.parsed(None) is None
    assert times.ago("2026-11-23T11:59:00Z", NOW) == "1min 0s"
    assert times.since("10m", NOW) == datetime(2026, 11, 23, 11, 50, tzinfo=UTC)
    assert times.since("2026-11-23T10:00:00Z", NOW).hour == 10
    with pytest.raises(ClientError, match="is no time"):
        times.since("soon", NOW)


def test_keys_that_were_not_taken_are_sent_again_and_no_others():
    typed, sent = Typed(), []
    typed.type(b"abc")
    assert typed.unsent == b"abc"
    typed.connected(0)
    typed.flow(sent.append)
    typed.type(b"def")
    assert b"".join(sent) == b"abcdef" and typed.unsent == b""
    typed.hold()
    typed.type(b"ghi")
    assert typed.unsent == b"ghi"
    again = []
    typed.connected(4)
    typed.flow(again.append)
    assert b"".join(again) == b"efghi"


def test_no_more_is_sent_than_the_host_has_room_for():
    typed, sent = Typed(), []
    typed.connected(0)
    typed.flow(sent.append)
    assert typed.type(b"x" * (AHEAD + 50_000)) and not typed.type(b"x" * MOST)
    assert AHEAD <= len(b"".join(sent)) < AHEAD + 20_000
    typed.took(AHEAD)
    assert len(b"".join(sent)) == AHEAD + 50_000


def test_what_was_never_sent_can_be_forgotten():
    typed, sent = Typed(), []
    typed.connected(0)
    typed.flow(sent.append)
    typed.type(b"sent")
    typed.hold()
    typed.type(b"rm -rf\r")
    typed.forget_unsent()
    typed.connected(2)
    typed.flow(sent.append)
    typed.type(b"!")
    assert b"".join(sent) == b"sent" + b"nt" + b"!"
