"""Clients for the REST API: each person of the cast with a token."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from console.auth import tokens
from tests.unit.console.views.conftest import cast, project

__all__ = ["cast", "project"]

JOBS = "/v1/projects/default/locations/us-central1/customJobs"


@pytest.fixture
def script(cast):
    """script("bob"): a client that sends Bob's token. script(): a client without a token."""

    def call_as(name=None, **headers):
        if name:
            headers["authorization"] = (
                f"Bearer {tokens.create(getattr(cast, name), 'test', timezone.now())[1]}"
            )
        return Client(headers=headers)

    return call_as
