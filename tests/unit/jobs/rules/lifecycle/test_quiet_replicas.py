"""Which replicas are unusually quiet."""

from __future__ import annotations

import pytest

from jobs.rules.lifecycle.quiet_replicas import MIN_S, unusually_quiet


@pytest.mark.parametrize(
    ("quiet", "unusual"),
    [
        ({}, set()),
        ({"a": 1e6}, set()),
        ({"a": 2.0, "b": 600.0}, {"b"}),
        ({"a": 2.0, "b": MIN_S - 1}, set()),
        ({"a": 30.0, "b": 30.0, "c": 299.0}, set()),
        ({"a": 30.0, "b": 30.0, "c": 300.0}, {"c"}),
        ({"a": 600.0, "b": 601.0, "c": 3.0}, set()),
        ({str(n): 1.0 for n in range(63)} | {"x": 90.0}, {"x"}),
    ],
)
def test_a_replica_that_is_quiet_for_much_longer_than_most_is_unusual(quiet, unusual):
    assert unusually_quiet(quiet) == unusual
