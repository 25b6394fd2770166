"""Schemathesis asks for whatever the description of the API allows, and for what it does not, as people of each role.

No answer is an error of ours; each is as the description says; a viewer changes nothing; a stranger learns nothing, not
even what is there. Each request is rolled back, so that all begin with the same rows. The seed is fixed: `API_SEED`
takes another, and `API_EXAMPLES=500` asks longer.
"""

from __future__ import annotations

import os
from datetime import timedelta

import pytest
import requests
import schemathesis
from django.db import transaction
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode, checks
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from console.api import rate_limits
from console.api.description import ACCOUNT, ANYBODY, EVERYBODY
from console.api.openapi import operations
from console.api.openapi.view import description
from console.auth.access import VIEWER_VERBS
from jobs.models import Job
from tests.unit.console.api.test_description import CALLS, names_of
from tests.unit.console.test_permission_matrix import scene
from tests.unit.console.views.conftest import cast, no_host_answers, project

__all__ = ["cast", "no_host_answers", "project", "scene"]

EXAMPLES, SEED = int(os.environ.get("API_EXAMPLES", "6")), int(os.environ.get("API_SEED", "1"))
CHECKS = [
    checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# An admin of the deployment, a member, a viewer, somebody of another project, and nobody.
PEOPLE = ("root", "bob", "vera", "charlie", None)
# The client of a person has its own; packed answers cannot be compared.
OWN_HEADERS = {"authorization", "accept-encoding", "content-length", "content-type", "cookie", "user-agent"}
# What belongs to the project, with something that is not there.
MISSING = {"job_id": "1", "tuning_id": "1", "project": "no-project", "target": "999999", "key": "f" * 32}
# In what the project has, and in no address.
HIDDEN = b"hidden-from-strangers"
ENDPOINTS = {(each.method, each.path): each for each in CALLS}


def operations_of(tag):
    schema = schemathesis.openapi.from_dict(description())
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.tags == [tag]:
            yield operation


@st.composite
def asked(draw, operation, example):
    """A case, often about something that is there; and the same about something that is not, or None."""
    negative = draw(st.integers(0, 3)) == 0 and (operation.body or operation.query)
    mode = GenerationMode.NEGATIVE if negative else GenerationMode.POSITIVE
    case = draw(operation.as_strategy(generation_mode=mode))
    there = names_of(operation.path, example)
    other = None
    if case.path_parameters and draw(st.integers(0, 3)):
        case.path_parameters = {name: there[name] for name in case.path_parameters}
        changed = {name: MISSING.get(name, value) for name, value in case.path_parameters.items()}
        other = changed if changed != case.path_parameters else None
    if isinstance(case.query, dict) and "path" in case.query and draw(st.booleans()):
        case.query = {**case.query, "path": "bucket-1/run"}
    return case, other


def answer_of(client, case):
    """The answer of the product to a case, and what was sent."""
    sent = requests.Request(**to_request(case)).prepare()
    body = sent.body or b""
    body = body.encode() if isinstance(body, str) else body
    given_headers = {name: value for name, value in sent.headers.items() if name.lower() not in OWN_HEADERS}
    kind = sent.headers.get("Content-Type", "application/octet-stream")
    with transaction.atomic():
        answer = client.generic(sent.method, sent.path_url, body, content_type=kind, headers=given_headers)
        content = b"" if getattr(answer, "is_async", False) else answer.getvalue()
        transaction.set_rollback(True)
    return answer, content, sent


def to_request(case):
    allowed = ("method", "url", "params", "json", "data", "headers", "cookies", "files")
    made = case.as_transport_kwargs(base_url="http://testserver")
    return {name: value for name, value in made.items() if name in allowed}


def told(answer, content, sent):
    headers = {name.lower(): [value] for name, value in answer.headers.items()}
    return Response(answer.status_code, headers, content, sent, timedelta().total_seconds(), verify=False)


def look(clients, case, other, endpoint):
    """Returns whether the admin's request was done."""
    needs = operations.needs_of(endpoint.call, endpoint)
    done = False
    for person in PEOPLE:
        answer, content, sent = answer_of(clients[person], case)
        case.validate_response(told(answer, content, sent), checks=CHECKS)
        status = answer.status_code
        done = done or (person == "root" and status < 300)
        if person is None:
            assert status in (400, 401, 404) or needs == EVERYBODY, (status, content[:300])
        if (
            person == "vera"
            and endpoint.method != "get"
            and needs not in (ANYBODY, ACCOUNT, EVERYBODY, *VIEWER_VERBS)
        ):
            assert status >= 400 or b'"done":[]' in content, (status, content[:300])
        if person == "charlie":
            assert HIDDEN not in content
            if other:
                assert_nothing_is_learned(clients[person], case, other, status, content)
    return done


def assert_nothing_is_learned(client, case, other, status, content):
    """The answer about something that is there is that about something that is not."""
    there = case.path_parameters
    case.path_parameters = other
    answer, missing, _ = answer_of(client, case)
    case.path_parameters = there
    for name in (*there.values(), *other.values()):
        if len(name) > 3:
            content, missing = content.replace(name.encode(), b""), missing.replace(name.encode(), b"")
    assert (status, content) == (answer.status_code, missing)


@pytest.fixture
def clients(scene, monkeypatch):
    monkeypatch.setattr(rate_limits.RateLimit, "take", lambda *arguments: None)
    made, example = scene
    Job.objects.filter(pk=example["job"]).update(display_name=HIDDEN.decode())
    return made, example


TAGS = [tag["name"] for tag in description()["tags"]]


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.slow
def test_every_answer_is_as_described_and_tells_nobody_too_much(clients, tag):
    done = [ask(*clients, operation) for operation in operations_of(tag)]
    assert any(done), "not one request was done, so little was seen"


def ask(people, example, operation):
    """How many of the cases of a call were done."""
    endpoint, count = ENDPOINTS[operation.method.lower(), operation.path], []

    @seed(SEED)
    @settings(
        max_examples=EXAMPLES,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=asked(operation, example))
    def each(case):
        count.append(look(people, *case, endpoint))

    each()
    return sum(count)
