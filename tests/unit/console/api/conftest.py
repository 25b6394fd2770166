"""Clients for the REST API: each person of the cast with a token."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.unit.console.script_tokens import token_of
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
            headers["authorization"] = f"Bearer {token_of(getattr(cast, name), elevated)}"
        return Client(headers=headers)

    return call_as
