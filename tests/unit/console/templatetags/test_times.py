"""How times and durations are said, in each language: what is kept of one is no other's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import translation

from console.templatetags import display

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("gone_s", "said"),
    [
        (0, "just now"),
        (4.9, "just now"),
        (5, "5 s ago"),
        (64.9, "1 min 4 s ago"),
        (90061, "1 d 1 h ago"),
        (-5, "just now"),
        (-5.5, "in 5 s"),
        (-3600, "in 1 h"),
    ],
)
def test_how_long_ago_a_moment_was(gone_s, said):
    for _again in range(2):
        assert display.relative(NOW - timedelta(seconds=gone_s), NOW) == said


def test_the_same_length_is_said_in_the_language_of_the_page():
    for _again in range(2):
        for language, ago, long in (("en", "2 h ago", "2 h"), ("ja", "2 時間前", "2 時間")):
            with translation.override(language):
                assert display.relative(NOW - timedelta(hours=2), NOW) == ago
                assert display.length(timedelta(hours=2)) == long


def test_a_moment_is_shown_to_the_second_and_as_a_time_ago(monkeypatch):
    monkeypatch.setattr(display.timezone, "now", lambda: NOW)
    at = "2026-05-04T11:59:00.000Z"
    assert display.ago(NOW - timedelta(minutes=1)) == (
        f'<time datetime="{at}" title="2026-05-04 11:59:00 UTC" data-ago="{at}">1 min ago</time>'
    )
    assert f'<span data-when="{at}">2026-05-04 11:59:00 UTC</span>' in display.when(
        NOW - timedelta(minutes=1)
    )
    assert display.took(NOW, NOW + timedelta(seconds=61)) == "<span>1 min 1 s</span>"
    assert (
        display.took(NOW - timedelta(seconds=61))
        == '<span data-since="2026-05-04T11:58:59.000Z">1 min 1 s</span>'
    )
