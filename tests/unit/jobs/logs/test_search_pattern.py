"""Search in bytes ignores case exactly as Unicode's case folding of the text does."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_a_regular_expression_is_compiled_only_for_text_that_needs_one(monkeypatch):
    made = []
    honest = re.compile
    monkeypatch.setattr(re, "compile", lambda pattern: made.append(pattern) or honest(pattern))
    assert places("KeyError", b"a keyerror") == [(2, 10)] and not made
    assert places("é", "É".encode()) == [(0, 2)] and len(made) == 1


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
            assert (
                data[start:end].decode().casefold() == text.casefold()
                and end - start <= SearchPattern(text).reach
            )
