"""docs/guarantees.md has a row for each guarantee and failure mode, and each test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
PROMISES = [f"G{number}" for number in (*range(1, 18), *range(19, 30))]
FAILURES = [str(number) for number in (*range(1, 13), *range(14, 42), 44, 45, 46, 49, *range(50, 55))]
NAMED = re.compile(r"`(tests/[^`\s]*)`")
ROW = re.compile(r"^\*\*(G?\d+)\.", re.M)


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


def exists(named: str) -> bool:
    path, _, test = named.partition("::")
    return test in collected_from(path)


def test_every_test_that_is_named_exists():
    assert NAMED.findall(PAGE)
    assert [named for named in NAMED.findall(PAGE) if not exists(named)] == []


@pytest.mark.parametrize("number", PROMISES + FAILURES)
def test_every_promise_and_every_failure_has_a_row_with_a_test(number):
    assert NAMED.findall(rows()[number])


def test_a_name_that_is_no_test_is_noticed():
    own = "tests/architecture/test_guarantees.py"
    assert exists(f"{own}::test_a_name_that_is_no_test_is_noticed")
    for wrong in (f"{own}::test_nothing", f"{own}::exists", own, "tests/none.py::test_x", f"{own}::ROW"):
        assert not exists(wrong)
