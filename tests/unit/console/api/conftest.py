"""Clients for the REST API: each person of the cast with a token."""

from __future__ import annotations

import secrets
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from console.auth import tokens
from console.models import ApiToken
from tests.unit.console.views.conftest import browser, cast, project

__all__ = ["browser", "cast", "project"]

JOBS = "/v1/projects/default/locations/us-central1/customJobs"
# The jobs of all locations.
ALL = "/v1/projects/default/locations/-/customJobs"


@pytest.fixture
def script(cast):
    """script("bob"): a client that sends Bob's token. script(): a client without a token.

    `elevated`: the token may do what asks a person for the password.
    """

    def call_as(name=None, elevated=False, **headers):
        if name:
            token, now = secrets.token_hex(), timezone.now()
            # Not by `tokens.create`, so that the audit has only what the test does.
            ApiToken.objects.create(
                user=getattr(cast, name),
                name="test",
                digest=tokens.digest(token),
                created_at=now,
                expires_at=now + timedelta(days=90),
                elevated=elevated,
            )
            headers["authorization"] = f"Bearer {token}"
        return Client(headers=headers)

    return call_as
