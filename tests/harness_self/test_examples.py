"""A third of the examples on PostgreSQL, but at least one; all of them on SQLite."""

from __future__ import annotations

import pytest

from tests.harness.examples import examples_here


@pytest.mark.parametrize(("url", "counts"), [("", [120, 25, 1]), ("postgresql://somewhere", [40, 8, 1])])
def test_postgresql_gets_a_third_of_the_examples(monkeypatch, url, counts):
    monkeypatch.setenv("TRAINYARD_TEST_DATABASE_URL", url)
    assert [examples_here(count) for count in (120, 25, 1)] == counts
