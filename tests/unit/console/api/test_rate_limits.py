"""A token that sends too many requests is told when to go on. Others are not slowed down."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.conf import settings as django_settings

from console.api import rate_limits
from console.api.rate_limits import RateLimit, TooManyRequests
from tests.unit.console.api.conftest import ALL


def taken(limit, token, most, now):
    """How many requests of at most `most` are allowed, and in how many seconds the next one is."""
    for count in range(most):
        try:
            limit.take(token, 60, now)
        except TooManyRequests as refused:
            return count, refused.retry_after_s
    return most, 0


def test_a_minute_of_requests_at_once_and_then_at_the_rate():
    limit = RateLimit()
    assert taken(limit, 1, 100, 0.0) == (60, 1)
    assert taken(limit, 1, 100, 0.5) == (0, 1)
    assert taken(limit, 1, 100, 5.0) == (5, 1)
    assert taken(limit, 2, 10, 5.0) == (10, 0)
    assert taken(limit, 1, 100, 10_000.0) == (60, 1)
    slow = RateLimit()
    slow.take(1, 1, 0.0)
    with pytest.raises(TooManyRequests) as refused:
        slow.take(1, 1, 15.0)
    assert refused.value.retry_after_s == 45


def test_no_limit_counts_nothing():
    limit = RateLimit()
    for _ in range(100):
        limit.take(1, 0, 0.0)
    assert not limit._left


def test_tokens_that_are_not_used_are_forgotten(monkeypatch):
    monkeypatch.setattr(rate_limits, "MAX_TOKENS", 3)
    limit = RateLimit()
    for token in range(10):
        limit.take(token, 60, 0.0)
    assert list(limit._left) == [7, 8, 9]


@pytest.mark.django_db
def test_the_answer_says_when_to_come_again(script, cast, project, settings, monkeypatch):
    monkeypatch.setattr(rate_limits, "OF_TOKENS", RateLimit())
    settings.TRAINYARD = replace(django_settings.TRAINYARD, token_requests=2)
    bob, vera = script("bob"), script("vera")
    assert [bob.get(ALL).status_code for _ in range(2)] == [200, 200]
    refused = bob.get(ALL)
    assert (refused.status_code, refused.json()["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
    assert (
        1 <= int(refused["Retry-After"]) <= 30
        and "2 requests in a minute" in refused.json()["error"]["message"]
    )
    assert vera.get(ALL).status_code == 200
