"""Search in a log finds what a search of all its lines would find, wherever they are stored."""

from __future__ import annotations

import random
from contextlib import ExitStack

import pytest

from jobs.logs import reader, run_search, segments
from jobs.logs.run_search import search_run
from jobs.logs.search_budget import MOST, SearchBudget
from jobs.logs.search_pattern import SearchPattern
from tests.unit.console.log_rows import lose, write
from tests.unit.jobs.conftest import spec

ADA, BOB = 1, 2

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(add_host, submit):
    add_host()
    return submit(spec()).runs.get()


def found_in_turns(run, needle, most=200):
    """Search the whole log as a client does: each call continues where the last one ended."""
    hits, at = [], 0
    for _ in range(most):
        found = search_run(run, SearchPattern(needle), at, reader.size(run))
        hits += found.hits
        if found.over:
            return hits
        at = found.end
    raise AssertionError("it never comes to the end")


@pytest.mark.parametrize("seed", range(6))
def test_each_matching_line_is_found_once_however_the_log_is_divided(run, monkeypatch, seed):
    dice = random.Random(seed)
    monkeypatch.setattr(SearchPattern, "step", dice.choice([7, 50, 1000]))
    monkeypatch.setattr(run_search, "MAX_READ", dice.choice([100, 5000]) + 60)
    monkeypatch.setattr(run_search, "MAX_HITS", dice.choice([1, 3, 1000]))
    monkeypatch.setattr(run_search, "MAX_LINE", 1600)
    words = [b"loss", b"LOSS ", b"lo", b"ss", b"los", b"\xc3\xa9", b" ", b"x" * 5]
    lines = [b"".join(dice.choices(words, k=dice.randrange(6))) + b"\n" for _ in range(150)]
    data = b"".join(lines)
    cuts = sorted(dice.sample(range(1, len(data)), 12))
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        write(run, data[start:end], z=dice.random() < 0.5)
    expected, at = [], 0
    for line in lines:
        if (place := line.lower().find(b"loss")) >= 0:
            expected.append((at + place, at, line.rstrip(b"\n")))
        at += len(line)
    found = [(hit.offset, hit.line, hit.text) for hit in found_in_turns(run, "Loss")]
    assert found == expected and expected


def test_no_match_crosses_a_gap_and_matches_behind_it_are_found(run):
    write(run, b"one loss\nanother loss, and a los")
    lose(run, 1000)
    write(run, b"s two\nloss three, not ended")
    assert [
        (hit.offset, hit.text) for hit in search_run(run, SearchPattern("loss"), 0, reader.size(run)).hits
    ] == [
        (4, b"one loss"),
        (17, b"another loss, and a los"),
        (1038, b"loss three, not ended"),
    ]


def test_a_line_without_an_end_is_searched_in_parts_and_shown_in_part(run, monkeypatch):
    monkeypatch.setattr(SearchPattern, "step", 4000)
    monkeypatch.setattr(run_search, "MAX_LINE", 1600)
    write(run, b"." * 3998 + b"loss" + b"." * 9000)
    [hit] = search_run(run, SearchPattern("loss"), 0, reader.size(run)).hits
    assert hit.offset == 3998 and 3998 - 1600 <= hit.line <= 3998
    assert hit.text == b"." * run_search.BEFORE + b"loss" + b"." * run_search.BEHIND


@pytest.mark.parametrize("place", range(3892, 3902))  # the first part ends before 3897
def test_a_match_across_two_parts_of_a_line_is_found_once(run, monkeypatch, place):
    monkeypatch.setattr(SearchPattern, "step", 4000)
    monkeypatch.setattr(run_search, "MAX_LINE", 1600)
    write(run, b"." * place + b"loss" + b"." * 9000)
    [hit] = search_run(run, SearchPattern("loss"), 0, reader.size(run)).hits
    assert hit.offset == place and b"loss" in hit.text and hit.line <= place


def test_one_search_request_reads_a_bounded_part(run, monkeypatch):
    monkeypatch.setattr(SearchPattern, "step", 1000)
    monkeypatch.setattr(run_search, "MAX_READ", 3000)
    monkeypatch.setattr(segments, "SMALL_TAIL", 100)
    for _ in range(10):
        write(run, b"some line or other\n" * 100)
    asked = []
    read = reader.read
    monkeypatch.setattr(
        reader, "read", lambda row, start, limit: asked.append(limit) or read(row, start, limit)
    )
    found = search_run(run, SearchPattern("nothing like it"), 0, reader.size(run))
    assert sum(asked) == 3000 and 2900 < found.end <= 3000 and not found.hits


def test_a_full_answer_names_where_to_go_on_and_the_last_says_that_it_is_complete(run):
    write(run, b"loss\nloss\nno end: los")
    some = search_run(run, SearchPattern("loss"), 0, reader.size(run), max_hits=2)
    assert (len(some.hits), some.over) == (2, False)
    assert not search_run(run, SearchPattern("end"), 0, reader.size(run), max_hits=1).over, (
        "there may be another one behind it"
    )
    assert search_run(run, SearchPattern("none"), 0, reader.size(run) + 1000).over, (
        "no more is stored than is stored"
    )
    rest = search_run(run, SearchPattern("loss"), some.end, reader.size(run))
    assert (rest.hits, rest.over) == ((), True)
    write(run, b"s")
    grown = search_run(run, SearchPattern("loss"), rest.end, reader.size(run))
    assert [hit.offset for hit in grown.hits] == [18], (
        "what had begun when all was looked through is found when it is there"
    )


def test_a_search_whose_time_is_over_answers_what_it_has_and_the_next_one_goes_on(run, monkeypatch):
    monkeypatch.setattr(SearchPattern, "step", 1000)
    monkeypatch.setattr(run_search, "MAX_LINE", 200)
    for number in range(20):
        write(run, b"a line of the log\n" * 30 + b"number %d\n" % number)
    hits, at, requests = [], 0, 0
    while True:
        with SearchBudget(ADA, seconds=0) as budget:
            found = search_run(run, SearchPattern("number"), at, reader.size(run), budget=budget)
        requests += 1
        hits += found.hits
        if found.over:
            break
        assert found.end > at, "a search without time moves on all the same"
        at = found.end
    assert [hit.text for hit in hits] == [b"number %d" % number for number in range(20)] and requests >= 10


def test_a_new_search_of_a_person_ends_the_one_before_and_no_other(run):
    with SearchBudget(ADA) as first, SearchBudget(BOB) as other:
        assert not first.spent()
        with SearchBudget(ADA) as second:
            assert (first.spent(), second.spent(), other.spent()) == (True, False, False)
    with SearchBudget(ADA) as third:
        assert not third.spent()


def test_of_all_that_a_person_looks_for_in_logs_only_the_newest_goes_on():
    with ExitStack() as stack:
        begun = [stack.enter_context(SearchBudget(ADA, number)) for number in range(MOST)]
        other = stack.enter_context(SearchBudget(BOB))
        assert not any(each.spent() for each in begun)
        # The same again ends the one before, and no other.
        begun.append(stack.enter_context(SearchBudget(ADA, 0)))
        assert [each.spent() for each in begun] == [True] + [False] * MOST
        begun.append(stack.enter_context(SearchBudget(ADA, "something else")))
        assert [each.spent() for each in begun] == [True, True] + [False] * MOST
        assert not other.spent()
