"""Search in bytes ignores case exactly as Unicode's case folding of the text does."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.logs import search_pattern
from jobs.logs.search_pattern import SearchPattern

LETTERS = st.text(st.sampled_from("aAöÖßẞsSſµμΜιΐςσΣéÉЖжǅǆ .*(\\😀"), min_size=1, max_size=5)


def places(text, data):
    find, at, found = SearchPattern(text).finder(data), 0, []
    while (span := find(at)) is not None:
        found.append(span)
        at = span[1]
    return found


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("größe", "die GRÖSSE"),
        ("GRÖSSE", "die größe"),
        ("ж", "Ж"),
        ("Σίσυφος", "σίσυφοσ"),
        ("keyerror", "KeyError"),
        ("Sß", "sẞ"),
        ("a.c (x)*", "A.C (X)*"),
        ("ö.*", "Ö.*"),
        ("😀é", "😀É"),
    ],
)
def test_text_in_another_case_is_found(text, line):
    data = b"\xff\xc3 " + line.encode() + b"\xc3"
    [(start, end)] = places(text, data)
    assert data[start:end].decode().casefold() == text.casefold() and end - start <= SearchPattern(text).reach


@pytest.mark.parametrize(
    ("text", "data"),
    [
        # Each of these took a regular expression minutes: it went back over "ssss..." at each of its places.
        ("ß" * 200, b"s" * 399 + b"\n"),
        ("é" + "ß" * 100 + "x", ("é" + "ß" * 99).encode()),
        ("sß" * 60, ("ß" * 59 + "s\n").encode()),
        ("a" * 199 + "é", b"a" * 997 + b"\n"),
    ],
)
def test_no_text_makes_a_search_slow(text, data):
    """Four megabytes take about a tenth of a second; a search that goes back takes 30 s and more."""
    data *= 4_000_000 // len(data)
    began = time.process_time()
    SearchPattern(text).finder(data)(0)
    assert time.process_time() - began < 3


def test_other_threads_run_while_a_text_is_searched():
    """The longest time for which the search keeps the interpreter for itself is a block, whatever the log's size."""
    turns, over = [], threading.Event()

    def look():
        while not over.wait(0.001):
            turns.append(time.monotonic())

    looking = threading.Thread(target=look)
    looking.start()
    SearchPattern("nirgendsß").finder(("größe und Straße " * 500_000).encode())(0)
    over.set()
    looking.join()
    assert len(turns) > 30, "one call of the interpreter's own would leave no turn to anybody"


def test_half_of_a_letter_counts_as_the_whole_letter():
    data = "eine Größe".encode()
    [(start, end)] = places("grös", data)
    assert data[start:end].decode() == "Größ"


def test_a_match_is_found_wherever_blocks_of_the_folding_end(monkeypatch):
    monkeypatch.setattr(search_pattern, "BLOCK", 16)
    monkeypatch.setattr(search_pattern, "PAUSE_S", 0)
    for before in range(40):
        data = b"\xc3" + "ö".encode() * before + "Straße\n".encode() + "é".encode() * 40
        found = places("STRAẞE", data)
        assert [data[start:end].decode() for start, end in found] == ["Straße"]


@pytest.mark.parametrize(("text", "line"), [("öl", "ol"), ("ö.", "öx"), ("é", "\xe8")])
def test_other_text_is_not_found(text, line):
    assert places(text, line.encode()) == []


@given(LETTERS, LETTERS, LETTERS)
def test_a_place_is_always_the_same_letters(text, before, behind):
    """A text is never missed where it stands as it was typed or in capitals."""
    for middle in (text, text.upper(), text.lower()):
        if text.isascii() and not middle.isascii() or middle.casefold() != text.casefold():
            continue
        data = (before + middle + behind).encode()
        found = places(text, data)
        assert found
        for start, end in found:
            part = data[start:end].decode()
            assert text.casefold() in part.casefold() and end - start <= SearchPattern(text).reach
            assert text.casefold() not in part[1:-1].casefold(), "no more letters than it needs"
