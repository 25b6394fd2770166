"""The description of the API (OpenAPI) has every call, and says of each what is so."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from django.db import transaction
from django.test import Client
from drf_spectacular.validation import validate_schema

from console.api.description import ACCOUNT, ANYBODY, EVERYBODY
from console.api.openapi import addresses, operations
from console.api.openapi.view import description
from console.auth.scopes import Scope
from tests.harness import described_answers
from tests.unit.console.script_tokens import token_of
from tests.unit.console.test_permission_matrix import REST, REST_OPEN, REST_OWN, SHELL, scene
from tests.unit.console.views.conftest import cast, no_host_answers, project

__all__ = ["cast", "no_host_answers", "project", "scene"]

# Nothing to be at, because nobody may say more than that they are here.
OURS = [row for row in REST if row[1].startswith(addresses.ROOT)]
CALLS = list(addresses.endpoints(described_answers.flat(described_answers.get_resolver())))


def endpoint_of(method, path):
    """The call at an address of the table of permissions."""
    path = path.partition("?")[0]
    for each in CALLS:
        if each.method == method.lower() and re.fullmatch(form_of(each), path):
            return each
    raise LookupError(f"{method} {path}")


def form_of(endpoint):
    return re.sub(r"\\{(\w+)\\}", lambda name: endpoint.parameters[name[1]], re.escape(endpoint.path))


def test_every_call_is_described():
    assert len(CALLS) > 140
    assert [f"{each.method} {each.path}" for each in CALLS if each.call is None] == []
    said = [call for path in description()["paths"].values() for call in path.values()]
    assert len(said) == len(CALLS) == len({call["operationId"] for call in said})
    for call in said:
        assert re.fullmatch(r"[A-Z][^.]*[\w`]", call["summary"]), call["summary"]
        assert re.fullmatch(r"[a-zA-Z]+", call["operationId"])
        assert all(each["description"] for each in call.get("parameters", ()))
        assert call["responses"].keys() > {"4XX", "503"}


def test_it_is_valid_openapi():
    validate_schema(description())


def test_a_call_that_is_not_described_is_found():
    class View:
        def get(self): ...

    endpoint = addresses.Endpoint("/api/v1/x", "get", type("Callback", (), {"cls": View}), {}, "")
    assert endpoint.call is None


def test_each_call_needs_what_the_table_of_permissions_says():
    wrong = []
    for method, path, (_, verb), _ in OURS:
        endpoint = endpoint_of(method, path.format(job=1, host=1, target=1, tuning=1, sha256="0" * 64))
        needs = operations.needs_of(endpoint.call, endpoint)
        # What each job of a list needs is judged by itself. A target may be a person's own.
        listed = ":batch" in path or "/notifications/{target}" in path
        if (verb or ANYBODY) != needs and not (not verb and needs == ACCOUNT) and not listed:
            wrong.append((method, path, verb, needs))
    assert wrong == []
    for method, path in REST_OPEN:
        assert endpoint_of(method, path).call.needs == EVERYBODY


def test_a_token_needs_the_scope_that_is_said(scene, cast):
    """One scope less is refused with the name of the scope; the scope itself is let in."""
    example = scene[1]
    clients = {
        scope: Client(headers={"authorization": f"Bearer {token_of(cast.root, True, scope)}"})
        for scope in Scope
    }
    wrong, seen = [], 0
    for method, path, _, body in OURS:
        path = path.format(**example)
        endpoint = endpoint_of(method, path)
        wanted = operations.scope_of(endpoint.call, endpoint)
        told = {scope: answered(client, method, path, body, example) for scope, client in clients.items()}
        for scope, (status, text) in told.items():
            let_in = list(Scope).index(scope) >= list(Scope).index(wanted)
            seen += not let_in
            refused = (
                f"needs “{wanted}”" in text if status == 403 else "not do this" in text or '"done":[]' in text
            )
            if let_in == refused:
                wrong.append((method, path, scope, wanted, status, text[:200]))
    assert wrong == [] and seen > 80, "\n".join(map(str, wrong))


def answered(client, method, path, body, example):
    with transaction.atomic():
        sent = "" if body is None else json.dumps(body).replace("{job}", str(example["job"]))
        if ":batch" in path:
            sent = json.dumps({"jobs": [str(example["job"])]})
        given = client.generic(method, path, sent, content_type="application/json")
        transaction.set_rollback(True)
    return given.status_code, "" if given.streaming else given.content.decode()


def names_of(path, example):
    """The names of what there is, for the parameters of a call."""
    names = {"secrets": "HF", "templates": "t", "buckets": "a/b.txt", "machineTypes": "ours"}
    return {
        **{"project": "default", "location": "default", "replica": "workerpool0-0", "bucket": "ours"},
        **{"user": "yves", "session": "0" * 16, "token": "1", "view_id": "1"},
        **{"registry": "ghcr.io", "kind": "blobs", "digest": "a" * 64},
        "job_id": str(example["job"]),
        "tuning_id": str(example["tuning"]),
        "host": str(example["host"]),
        "target": str(example["target"]),
        "sha256": example["sha256"],
        "uuid": f"GPU-{example['host']}-0",
        "key": SHELL if "/shells/" in path else "running",
        "name": next((name for part, name in names.items() if f"/{part}" in path), "x"),
    }


def test_a_body_has_the_fields_that_are_described(scene):
    """What the view says that it lets in, when it is sent a field that no body has."""
    clients, example = scene
    with_body = [each for each in CALLS if each.call.body not in (None, bytes)]
    for endpoint in with_body:
        method, path = endpoint.method.upper(), endpoint.path.format(**names_of(endpoint.path, example))
        with transaction.atomic():
            given = clients["root"].generic(method, path, '{"no_field": 1}', content_type="application/json")
            transaction.set_rollback(True)
        message = given.json()["error"]["message"]
        assert given.status_code == 400, (method, path, message)
        if endpoint.call.summary == "Set a limit":
            assert message.startswith('The body must be {"limit": n}')
            continue
        fields = ", ".join(endpoint.call.body.__annotations__)
        known = f"The fields are {fields}." if fields else "The body must be empty."
        assert message == f"no_field is not a field of this. {known}", (method, path, message)
    assert len(with_body) > 50


@pytest.mark.parametrize("kind", ["json", "yaml"])
def test_programs_get_it(scene, kind):
    clients, _ = scene
    assert clients["loner"].get(f"/api/v1/openapi.{kind}").status_code == 200
    assert clients[None].get(f"/api/v1/openapi.{kind}").status_code == 401
    text = clients["vera"].get(f"/api/v1/openapi.{kind}").content.decode()
    assert "listHosts" in text and "3.1.0" in text


def test_an_answer_that_is_not_described_fails(scene, monkeypatch):
    clients, example = scene
    monkeypatch.setattr("console.api.hosts.hosts.format_time", lambda when: "at noon")
    with pytest.raises(described_answers.NotDescribed, match="date-time"):
        clients["root"].get(f"/api/v1/hosts/{example['host']}")
    monkeypatch.undo()
    monkeypatch.setattr("console.api.projects.quotas.plain", lambda limits: {"gpus": {}, "no_such": 1})
    with pytest.raises(described_answers.NotDescribed):
        clients["root"].get("/api/v1/defaultQuotas")


def test_every_row_of_a_person_is_a_call():
    for method, path in REST_OWN:
        if path.startswith(addresses.ROOT):
            assert endpoint_of(method, path.format(token=1)).call


def test_nothing_of_it_is_imported_before_somebody_asks():
    """Start and memory of the processes do not pay for it."""
    look = (
        "import sys, django; django.setup(); from django.urls import resolve; resolve('/api/v1/jobs');"
        "resolve('/help/api'); print([name for name in sys.modules if name.split('.')[0] in"
        " ('drf_spectacular', 'jsonschema')])"
    )
    found = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout == "[]\n"
