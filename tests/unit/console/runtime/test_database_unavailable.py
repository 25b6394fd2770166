"""The database does not answer: pages and API say that this passes, and show no internals."""

from __future__ import annotations

import pytest
from django.db import InterfaceError, OperationalError, connection
from django.test import Client

from jobs.models import Job
from tests.unit.console.api.conftest import JOBS, script
from tests.unit.console.views.conftest import cast, project
from tests.unit.console.views.example_rows import document

__all__ = ["cast", "project", "script"]
pytestmark = pytest.mark.django_db


@pytest.fixture
def away():
    """Let every statement fail, as on a connection to a killed server."""

    def fail(error):
        def refuse(execute, sql, params, many, context):
            raise error("connection to server at 10.0.0.9 failed")

        return connection.execute_wrapper(refuse)

    return fail


@pytest.mark.parametrize("error", [OperationalError, InterfaceError])
def test_the_api_answers_try_again_and_nothing_is_half_written(error, script, away):
    """Failure mode 12."""
    bob = script("bob")
    with away(error):
        answers = [bob.post(JOBS, document(), content_type="application/json"), bob.get(JOBS)]
    for answer in answers:
        assert answer.status_code == 503, answer.content
        assert answer.json()["error"]["status"] == "UNAVAILABLE" and "10.0.0.9" not in answer.content.decode()
    assert not Job.objects.exists()
    assert bob.get(JOBS).status_code == 200


@pytest.mark.parametrize("error", [OperationalError, InterfaceError])
@pytest.mark.parametrize("address", ["/", "/jobs/", "/jobs/1/", "/hosts/", "/login", "/healthz"])
def test_pages_say_that_the_outage_is_temporary(error, address, cast, away):
    browser = Client(raise_request_exception=False)
    browser.force_login(cast.bob)
    with away(error):
        answer = browser.get(address)
    assert answer.status_code == 503, answer.content
    assert "10.0.0.9" not in answer.content.decode() and "Traceback" not in answer.content.decode()
