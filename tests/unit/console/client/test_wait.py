"""The exit code of `wait` is that of the replica that failed first, by the last start of each."""

from __future__ import annotations

import pytest

from console.client.verbs.wait import exit_code


def replica(*runs):
    """(attempt, second of its end or None, exit code, signal) of each."""
    fields = ("attempt", "endTime", "exitCode", "exitSignal")
    rows = [dict(zip(fields, run, strict=True)) for run in runs]
    return {
        "runs": [
            {**row, "endTime": f"2026-11-23T12:00:{row['endTime']:02}Z"} if row["endTime"] else row
            for row in rows
        ]
    }


@pytest.mark.parametrize(
    ("replicas", "code"),
    [
        ([replica((1, 5, 3, None))], 3),
        ([replica((1, 5, None, 9))], 137),
        ([replica((1, 7, 3, None)), replica((1, 5, 4, None))], 4),
        ([replica((1, 5, 4, None), (2, 9, 3, None))], 3),
        # It was killed, was started again, and has ended by itself.
        ([replica((2, 5, None, 9), (2, 8, 3, None))], 3),
        ([replica((2, 5, None, 9), (2, 8, 0, None)), replica((2, 9, 3, None))], 3),
        ([replica((2, 5, None, 9), (2, None, None, None)), replica((2, 9, 3, None))], 3),
        ([replica((2, 5, 0, None))], 1),
        ([replica()], 1),
    ],
)
def test_the_code_of_a_failed_job(replicas, code):
    assert (
        exit_code(
            "FAILED",
            {
                "attempt": max([1, *[run["attempt"] for one in replicas for run in one["runs"]]]),
                "replicas": replicas,
            },
        )
        == code
    )


def test_the_codes_of_other_ends():
    assert exit_code("SUCCEEDED", {}) == 0 and exit_code("CANCELLED", {}) == 130
