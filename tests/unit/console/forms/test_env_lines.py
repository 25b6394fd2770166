"""Lines of a .env file."""

from __future__ import annotations

import pytest
from django.core.exceptions import ValidationError

from console.forms.env_lines import MAX_LINES, read_env_lines


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=1", "1"),
        ("  export  A = 1  ", "1"),
        ("A=", ""),
        ("A= # nothing", ""),
        ("A=a b # c", "a b"),
        ("A=a#b", "a#b"),
        ("A='a # \\n b'  # c", "a # \\n b"),
        ('A="a # b"', "a # b"),
        ('A="line 1\\nline 2 \\"x\\" \\$HOME"', 'line 1\nline 2 "x" $HOME'),
        ("A=$HOME/${X}", "$HOME/${X}"),
        ("A==x=", "=x="),
        ("\ufeffA=1", "1"),
    ],
)
def test_a_line_is_a_name_and_a_value(line, value):
    assert read_env_lines(line) == [("A", value)]


def test_comments_and_empty_lines_are_no_variables():
    assert read_env_lines("# all\r\n\r\nA=1\r\n\tB.c-d=2\n") == [("A", "1"), ("B.c-d", "2")]
    assert read_env_lines("") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A", "Line 1: write NAME=value"),
        ("\n1A=x", "Line 2: write NAME=value"),
        ("KEY='-----BEGIN\nA=1", "Line 1: the quote of KEY is not closed"),
        ('KEY="canary', "\\n between double quotes"),
        ("KEY='canary'x", "the quote of KEY"),
        ("A=1\n" * (MAX_LINES + 1), "more than 400 lines"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_without_its_value(text, words):
    with pytest.raises(ValidationError) as refused:
        read_env_lines(text)
    told = " ".join(refused.value.messages)
    assert words in told and "canary" not in told and "BEGIN" not in told
