"""Clients for the REST API: each person of the cast with a token."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from console.auth import tokens
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
            token = tokens.create(getattr(cast, name), "test", timezone.now(), elevated=elevated)[1]
            headers["authorization"] = f"Bearer {token}"
        return Client(headers=headers)

    return call_as
