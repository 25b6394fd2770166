"""Templates that a person can read in a diff."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_COLUMNS = 120
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))


def long_lines(text):
    return [number for number, line in enumerate(text.splitlines(), 1) if len(line) > MAX_COLUMNS]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT / "templates")))
def test_no_line_is_too_long(path):
    assert long_lines(path.read_text()) == []


def test_the_law_finds_a_long_line():
    assert TEMPLATES and long_lines("x" * 120 + "\n" + "x" * 121 + "\n") == [2]
