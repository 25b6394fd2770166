"""Secrets that a host was given for a preparation are masked in what it reports."""

from __future__ import annotations

import pytest

from jobs.preparations.masking import Mask


@pytest.mark.parametrize(
    ("secrets", "printed", "kept"),
    [
        (
            {"credential": "bob:geheim77"},
            "login bob:geheim77 and geheim77",
            "login ************ and ********",
        ),
        (
            {"index": "https://bob:gehe%40im@pip.lab/simple"},
            "Looking in https://bob:gehe%40im@pip.lab/simple",
            "Looking in https://bob:*********@pip.lab/simple",
        ),
        (
            {"credentials": {"registry": "ghcr.io", "username": "somebody", "password": "geheim77"}},
            "ghcr.io somebody geheim77",
            "ghcr.io somebody ********",
        ),
        ({"index": "https://pip.lab/simple"}, "https://pip.lab/simple", "https://pip.lab/simple"),
        ({}, "geheim77", "geheim77"),
    ],
)
def test_a_secret_is_masked(secrets, printed, kept):
    assert Mask(secrets).text(printed) == Mask(secrets).tail(printed) == kept


def test_the_beginning_of_a_secret_at_the_end_is_masked():
    assert Mask({"credential": "geheim77"}).text("fatal: geheim") == "fatal: ******"


def test_the_rest_of_a_secret_at_the_beginning_is_left_out():
    assert Mask({"credential": "geheim77"}).tail("heim77\n" + "x" * 1000) == "x" * 1000
