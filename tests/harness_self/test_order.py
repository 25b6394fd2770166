"""The order of the flows: a product that many files share is not closed for a file with a product of its own."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.conftest import LONG

ROOT = Path(__file__).resolve().parents[2]
OWN = re.compile(r"\bProduct\(|\bdef own_product\(")
APART = re.compile(r'^    return "apart"$|^SHAPES = \["apart"', re.M)
# Only `make soak` runs it.
FLOWS = sorted(set((ROOT / "tests" / "flows").glob("test_*.py")) - {ROOT / "tests/flows/test_soak.py"})


def kind(path):
    """0: the file has products of its own; 1: it shares one of the shape "apart"; 2: one of the shape "embedded"."""
    text = path.read_text()
    return 0 if OWN.search(text) else 1 if APART.search(text) else 2


def place(path):
    name = str(path.relative_to(ROOT))
    return next(place for place, start in enumerate(LONG) if name.startswith(start))


def test_each_kind_of_product_is_used_by_files_that_follow_each_other():
    order = [kind(path) for path in sorted(FLOWS, key=place)]
    assert set(order) == {0, 1, 2} and all(before <= after for before, after in pairwise(order))


@pytest.mark.parametrize("name", [name for name in LONG if name.endswith(".py")])
def test_each_file_that_is_named_exists(name):
    assert (ROOT / name).is_file()
