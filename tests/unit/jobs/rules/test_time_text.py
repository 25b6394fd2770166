"""How long something takes, and when something will be, as people say it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agents.infra.sentences import shown
from agents.infra.texts import in_language, said
from jobs.rules.scheduling.time_text import moment_text
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


class English:
    def gettext(self, message):
        return message


@pytest.mark.parametrize(("now", "english"), [(22, "14:10 UTC"), (21, "22 Nov 14:10 UTC")])
def test_when_a_host_is_free_can_be_shown_in_any_zone(now, english):
    at, today = (datetime(2026, 11, day, 14, 9, 30, tzinfo=UTC).timestamp() for day in (22, now))
    text = said("by {time}", time=moment_text(at, today))
    assert text == f"by {english}"
    assert in_language(text, English(), lambda at, _english: at) == "by 2026-11-22T14:10:00Z"
