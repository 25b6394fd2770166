"""How long something takes, as people say it."""

from __future__ import annotations

import pytest

from agents.infra.sentences import shown
from jobs.rules.time_text import time_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1 s"),
        (0.4, "1 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (120, "2 min"),
        (3569, "59 min"),
        (3571, "1 h"),
        (7200, "2 h"),
        (12_000, "3 h 20 min"),
    ],
)
def test_a_time_has_the_units_that_people_use(seconds, text):
    assert shown(time_text(seconds)) == text
