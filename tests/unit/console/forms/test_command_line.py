"""A command in one line: cut as a shell cuts it, or a question; and any argument vector as text and back."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from console.forms.command_line import question, read_arguments, shell_syntax, unclosed_quote, write_arguments

TORCHRUN = "torchrun --nproc-per-node 8 train.py"


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        (TORCHRUN, ["torchrun", "--nproc-per-node", "8", "train.py"]),
        (f"  {TORCHRUN}  \n\n", ["torchrun", "--nproc-per-node", "8", "train.py"]),
        (
            "torchrun \\\n  --nproc-per-node 8 \\\n  train.py\n",
            ["torchrun", "--nproc-per-node", "8", "train.py"],
        ),
        ("python3 -c 'print(1, 2)'", ["python3", "-c", "print(1, 2)"]),
        ('./a "b c" d\\ e', ["./a", "b c", "d e"]),
        ("python3 train.py lr=0.1 layers='[1, 2]'", ["python3", "train.py", "lr=0.1", "layers=[1, 2]"]),
        ("./run.sh", ["./run.sh"]),
        ('"/opt/my app/run"', ["/opt/my app/run"]),
        ("torchrun\n--nproc-per-node\n8\na file.py", ["torchrun", "--nproc-per-node", "8", "a file.py"]),
        ("", []),
    ],
)
def test_a_line_with_spaces_is_a_command_and_lines_are_arguments(text, argv):
    assert read_arguments(text) == argv and not question(text) and not unclosed_quote(text)


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("python3 a.py | tee log", "|"),
        ("cd /data && python3 a.py", "&&"),
        ("python3 a.py > out.txt", ">"),
        ("python3 a.py $(cat options)", "$("),
        ('python3 a.py "$HOME/data"', "$"),
        ("python3 a.py `cat options`", "`"),
        ("python3 a.py *.txt", "*"),
        ("python3 a.py data/{train,test}.csv", "{train,test}"),
        ("python3 a.py ~/data", "~"),
        ("python3 a.py & wait", "&"),
        ("SEED=1 python3 a.py", "SEED="),
        ("python3 a.py # twice", "#"),
        ("torchrun --nproc-per-node\n8\ntrain.py", "torchrun --nproc-per-node"),
    ],
)
def test_what_only_a_shell_can_run_is_a_question(text, asked):
    assert question(text) == asked
    without = write_arguments(read_arguments(text))
    assert not question(without) and read_arguments(without) == read_arguments(text)


def test_quotes_are_read_as_a_shell_reads_them():
    """Also what they hold: in single quotes and after a backslash nothing is for a shell."""
    for line in (
        "a '|' b",
        "a \\| b",
        "a '$HOME' b",
        "a \\$HOME",
        "a 'x && y' \"c | d\" e=*".replace("*", "1"),
    ):
        assert not question(line), line
    assert read_arguments("a '$HOME' \\| \"c | d\"") == ["a", "$HOME", "|", "c | d"]
    for line in ("python3 -c 'print(1)", 'python3 "a b', "python3 a.py \\"):
        assert unclosed_quote(line) and read_arguments(line) == [line]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=5))
@example(["a b"])
@example(["a b", "c"])
@example(["\\", "z"])
@example(["'"])
@example(["a|b"])
@example(['"a"', "b\\"])
@example(["\x85a", "b\r"])
def test_any_argument_vector_is_the_same_after_a_round_trip_through_text(argv):
    text = write_arguments(argv)
    assert read_arguments(text) == argv
    assert not question(text) and not unclosed_quote(text)


@given(st.lists(st.text("ab-=./1", min_size=1, max_size=6), min_size=1, max_size=6))
def test_a_line_that_a_shell_would_take_as_plain_words_is_cut_into_them(words):
    line = shlex.join(words)
    if not shell_syntax(line):
        assert read_arguments(line) == words
