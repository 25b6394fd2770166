"""Search by regular expression: each line once, bounded in time whatever the expression, and other threads go on."""

from __future__ import annotations

import random
import re
import threading
import time

import pytest

from jobs.logs import reader, run_search
from jobs.logs.regex_pattern import BadExpression, RegexPattern
from jobs.logs.run_search import search_run
from tests.unit.console.log_rows import lose, write
from tests.unit.jobs.conftest import spec


@pytest.fixture
def run(db, add_host, submit):
    add_host()
    return submit(spec()).runs.get()


def found_in_turns(run, pattern):
    hits, at = [], 0
    for _ in range(300):
        found = search_run(run, RegexPattern(pattern), at, reader.size(run))
        hits += found.hits
        if found.over:
            return hits
        at = found.end
    raise AssertionError("it never comes to the end")


@pytest.mark.parametrize("pattern", [r"lo+s{2}$", "^los", "s*", r"o\s+l", "^$", "(x|l).*é", r"[^a-k]ss"])
@pytest.mark.parametrize("seed", range(3))
def test_each_matching_line_is_found_once_however_the_log_is_divided(run, monkeypatch, seed, pattern):
    dice = random.Random(seed)
    monkeypatch.setattr(RegexPattern, "step", dice.choice([7, 50, 1000]))
    monkeypatch.setattr(run_search, "MAX_READ", dice.choice([100, 5000]) + 60)
    monkeypatch.setattr(run_search, "MAX_HITS", dice.choice([1, 3, 1000]))
    words = [b"loss", b"LOSS ", b"lo", b"ss", "é".encode(), b" ", b"x" * 5]
    lines = [b"".join(dice.choices(words, k=dice.randrange(6))) + b"\n" for _ in range(100)] + [
        b"\n",
        b"lo loss\n",
    ]
    data = b"".join(lines)
    cuts = sorted(dice.sample(range(1, len(data)), 12))
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        write(run, data[start:end], z=dice.random() < 0.5)
    expected, at = [], 0
    for line in lines:
        text = line.decode().rstrip("\n")
        if found := re.search(pattern, text, re.IGNORECASE):
            place = len(text[: found.start()].encode())
            expected.append((at + place, at, text.encode(), found[0].encode()))
        at += len(line)
    assert [(hit.offset, hit.line, hit.text, hit.match) for hit in found_in_turns(run, pattern)] == expected
    assert expected


def test_no_match_crosses_a_gap_or_begins_in_the_middle_of_a_line(run):
    write(run, b"one loss\nanother loss, and a los")
    lose(run, 1000)
    write(run, b"s two\nloss three, not ended")
    assert [hit.text for hit in found_in_turns(run, "^loss|los$")] == [
        b"another loss, and a los",
        b"loss three, not ended",
    ]


def test_a_line_without_an_end_is_searched_in_parts(run):
    write(run, b"." * 150_000 + b"step 123 loss" + b"." * 150_000)
    [hit] = found_in_turns(run, r"step \d+ loss")[:1]
    assert (hit.offset, hit.match) == (150_000, b"step 123 loss")


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|aa)+$x", "(.*)(.*)(.*)(.*)[^a]z", "(?:(?:a?){30}){30}z"])
def test_a_pattern_that_never_ends_is_stopped_in_time(pattern):
    """Each makes a search that goes back take years. The last one is nearly as large as expressions may be."""
    began = time.process_time()
    assert RegexPattern(pattern).finder(b"a" * 96 * 1024)(0) is None
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(a", "missing )"),
        ("a**", "bad repetition operator"),
        (r"(a)\1", "invalid escape sequence"),
        ("(?=a)", "invalid perl operator"),
        ("(.?){900}", "too large"),
        (r"(\pL{1,100}){9}", "too large"),
    ],
)
def test_what_cannot_be_searched_is_refused_with_the_reason(text, reason):
    with pytest.raises(BadExpression, match=re.escape(reason)) as refused:
        RegexPattern(text)
    assert "(?m)" not in str(refused.value)


def test_case_is_heeded_only_if_asked_and_bytes_that_are_no_text_do_not_disturb():
    data = b"\xff\xfe\xc3 ERROR \xc3\x89t\xc3\xa9\n"
    assert RegexPattern("error").finder(data)(0) == (4, 9)
    assert RegexPattern("(?-i)error").finder(data)(0) is None
    assert RegexPattern("É.É").finder(data)(0) == (10, 15)
    assert RegexPattern("x*").finder(data)(len(data)) is None


def test_other_threads_run_while_an_expression_is_searched():
    turns, over = [], threading.Event()

    def look():
        while not over.wait(0.001):
            turns.append(time.monotonic())

    looking = threading.Thread(target=look)
    looking.start()
    find, until = RegexPattern("(?:(?:a?){30}){30}z").finder(b"a" * 32 * 1024), time.monotonic() + 60
    while len(turns) < 30 and time.monotonic() < until:
        before = len(turns)
        find(0)
        assert len(turns) > before, "the search kept the interpreter for itself"
    over.set()
    looking.join()
