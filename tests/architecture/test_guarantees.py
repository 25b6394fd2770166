"""docs/guarantees.md has a row for each guarantee and failure mode, each test that it names exists, it says which of
them are slow, and how each guarantee was broken and seen."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
# Failure modes whose number is not given again.
GIVEN_UP = {13, 47, 48}
NAMED = re.compile(r"`(tests/[^`\s]*)`")
SAID_TO_BE_SLOW = re.compile(r"`(tests/[^`\s]*)` \(slow\)")
ROW = re.compile(r"^\*\*(G?\d+)\.", re.M)
# In the table of what was broken.
BROKEN = re.compile(r"^\| (G\d+) \| ([^|]+) \| `(tests/[^`\s]*)` \|$", re.M)


def rows() -> dict[str, str]:
    """Return the text of each numbered row, up to its blank line."""
    found = [(match[1], PAGE[match.start() :].split("\n\n")[0]) for match in ROW.finditer(PAGE)]
    assert len(found) == len(dict(found)), "a number has two rows"
    return dict(found)


@cache
def collected_from(path: str) -> frozenset[str]:
    """Return the names that pytest would collect from a file."""
    file = ROOT / path
    if not (file.is_file() and file.name.startswith("test_")):
        return frozenset()
    found = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            found.add(node.name)
        elif isinstance(node, ast.Assign) and ast.unparse(node.value).endswith(".TestCase"):
            found |= {
                target.id for target in node.targets if isinstance(target, ast.Name) and "Test" in target.id
            }
    return frozenset(found)


@cache
def slow_ones_of(path: str) -> frozenset[str]:
    """Return the names of those that only `make test-slow` runs: all of the file, or some."""
    body = ast.parse((ROOT / path).read_text()).body
    for node in body:
        if (
            isinstance(node, ast.Assign)
            and ast.unparse(node.targets[0]) == "pytestmark"
            and is_slow(node.value)
        ):
            return collected_from(path)
    tests = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(node.name for node in tests if any(map(is_slow, node.decorator_list)))


def is_slow(marks: ast.expr) -> bool:
    """Whether all that has these marks is slow, not only some of its parameters."""
    each = marks.elts if isinstance(marks, ast.List) else [marks]
    return "pytest.mark.slow" in [ast.unparse(mark) for mark in each]


def exists(named: str) -> bool:
    path, _, test = named.partition("::")
    return test in collected_from(path)


def test_every_test_that_is_named_exists():
    assert NAMED.findall(PAGE)
    assert [named for named in NAMED.findall(PAGE) if not exists(named)] == []


def test_the_page_says_which_tests_are_slow():
    """So that nobody takes a promise for shown by `make test` that only `make test-slow` shows."""
    slow = {named for named in NAMED.findall(PAGE) if (at := named.partition("::"))[2] in slow_ones_of(at[0])}
    said = SAID_TO_BE_SLOW.findall(PAGE)
    assert set(said) == slow
    assert len(said) == sum(NAMED.findall(PAGE).count(named) for named in slow), "each time that it is named"


def test_no_row_is_lost():
    promises = [int(number[1:]) for number in rows() if number.startswith("G")]
    failures = sorted(int(number) for number in rows() if not number.startswith("G"))
    assert promises == list(range(1, len(promises) + 1))
    assert failures == [number for number in range(1, max(failures) + 1) if number not in GIVEN_UP]


def test_each_promise_was_seen_to_fail_by_a_test_of_its_own():
    broken = BROKEN.findall(PAGE)
    assert [number for number, _, _ in broken] == [number for number in rows() if number.startswith("G")]
    assert [number for number, _, seen_by in broken if f"`{seen_by}`" not in rows()[number]] == []


@pytest.mark.parametrize("number", rows())
def test_every_promise_and_every_failure_has_a_row_with_a_test(number):
    assert NAMED.findall(rows()[number])


def test_a_name_that_is_no_test_is_noticed():
    own = "tests/architecture/test_guarantees.py"
    assert exists(f"{own}::test_a_name_that_is_no_test_is_noticed")
    for wrong in (f"{own}::test_nothing", f"{own}::exists", own, "tests/none.py::test_x", f"{own}::ROW"):
        assert not exists(wrong)
