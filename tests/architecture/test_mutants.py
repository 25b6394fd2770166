"""The list of `make mutants` fits the code: each safeguard is where it says, and its tests exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.safeguards import SAFEGUARDS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("safeguard", SAFEGUARDS, ids=lambda each: each.name)
def test_a_safeguard_is_where_it_says_and_its_tests_exist(safeguard):
    text = (ROOT / safeguard.file).read_text()
    assert safeguard.taken_out(text) != text
    compile(safeguard.taken_out(text), safeguard.file, "exec")
    assert safeguard.tests
    for test in safeguard.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).exists(), path
        assert not name or f"def {name}(" in (ROOT / path).read_text(), test


def test_each_safeguard_has_a_name_of_its_own():
    assert len({each.name for each in SAFEGUARDS}) == len(SAFEGUARDS)
