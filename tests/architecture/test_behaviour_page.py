"""docs/behaviour.md is what its tool would write now, and every test that it names exists."""

from __future__ import annotations

import re

from tests.architecture.test_guarantees import exists
from tests.behaviour.page import FAMILIES, PAGE, RESULTS, ROW, WITHOUT_A_TEST, page, rows, shown_here

# How many rows the documents have, by family.
ROWS = {"S0": 40, "S1": 7, "S2": 6, "S3": 42, "S4": 71}


def test_the_page_is_fresh():
    assert PAGE.read_text() == page(), "make behaviour"


def test_every_row_is_there_once():
    found = rows()
    assert all(ROW.fullmatch(name) and row.statement for name, row in found.items())
    assert {family: sum(name.startswith(family) for name in found) for family in FAMILIES} == ROWS


def test_what_is_named_exists():
    found = rows()
    assert set(shown_here()) <= set(found)
    assert [test for row in found.values() for test in row.tests if not exists(test)] == []
    notes = re.compile(rf"(({'|'.join(WITHOUT_A_TEST)}): \w|as S\d-\d\d$|tests/)")
    for row in found.values():
        assert row.note == "" or notes.match(row.note), row


def test_a_row_without_a_test_is_seen_to_be_missing():
    found = rows()
    assert {row.result for row in found.values()} <= set(RESULTS)
    row = found["S0-25"]
    row.tests = []
    assert row.result == "missing"
