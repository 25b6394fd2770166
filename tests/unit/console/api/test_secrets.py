"""Secrets in the REST API: write-only, for those who may, and in no answer about jobs."""

from __future__ import annotations

import pytest

from jobs.models import AuditEntry, Job, Secret
from jobs.secrets import of_jobs
from tests.unit.console.api.conftest import JOBS
from tests.unit.console.api.test_projects import put, violation
from tests.unit.console.views.example_rows import a_host, document

P = "/api/v1/projects/default/secrets"
OWN = "/api/v1/secrets"
CANARY = "canary-51e0c7a9"


def job_with(*env):
    body = document()
    body["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["env"] = list(env)
    return body


def post(client, *env):
    return client.post(JOBS, job_with(*env), content_type="application/json")


def test_a_secret_is_never_read_back(script):
    alice = script("alice")
    made = put(alice, f"{P}/HF", {"value": CANARY})
    assert made.status_code == 201
    again = put(alice, f"{P}/HF", {"value": CANARY})
    assert again.status_code == 200
    assert set(again.json()) == {"name", "createTime", "updateTime", "updatedBy"}
    listed = script("bob").get(P)
    assert [(row["name"], row["updatedBy"]) for row in listed.json()["secrets"]] == [("HF", "alice")]
    audit = alice.get("/api/v1/audit")
    assert "secret.set" in audit.content.decode()
    for answer in (made, again, listed, audit):
        assert CANARY not in answer.content.decode()
    assert alice.get(f"{P}/HF").status_code == 405


def test_a_persons_secrets_are_for_that_person_only(script):
    bob, alice = script("bob"), script("alice")
    put(bob, f"{OWN}/HF", {"value": CANARY})
    assert [row["name"] for row in bob.get(OWN).json()["secrets"]] == ["HF"]
    assert alice.get(OWN).json() == {"secrets": []}
    assert alice.delete(f"{OWN}/HF").status_code == 404
    refused = post(alice, {"name": "A", "valueFrom": {"secret": "HF", "of": "person"}})
    assert (
        refused.status_code == 400 and "There is no secret HF of yours" in refused.json()["error"]["message"]
    )
    assert bob.delete(f"{OWN}/HF").status_code == 200 and bob.delete(f"{OWN}/HF").status_code == 404
    assert [(row.what, row.actor, row.project) for row in AuditEntry.objects.order_by("id")] == [
        ("secret.set", "bob", None),
        ("secret.remove", "bob", None),
    ]


def test_submitters_use_what_admins_of_the_project_set(script):
    put(script("alice"), f"{P}/HF", {"value": CANARY})
    a_host()
    given = post(script("bob"), {"name": "HF_TOKEN", "valueFrom": {"secret": "HF"}})
    assert given.status_code == 200
    job = Job.objects.get()
    assert of_jobs.values_of(job.pk) == [CANARY]
    assert script("bob").get(P).json()["secrets"][0]["lastUseTime"]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (f"{P}/1A", {"value": CANARY}, "name"),
        (f"{P}/A", {"value": ""}, "value"),
        (f"{P}/A", {"value": [CANARY]}, "value"),
        (f"{P}/A", {}, "value"),
        (f"{P}/A", {"value": CANARY, "name": "B"}, "name"),
        (f"{P}/A", {"value": "x" * 70_000}, "value"),
    ],
)
def test_a_refusal_names_the_field_and_repeats_no_value(script, path, body, field):
    answer = put(script("alice"), path, body)
    assert answer.status_code == 400 and violation(answer) == ("INVALID_ARGUMENT", field)
    assert CANARY not in answer.content.decode() and not Secret.objects.exists()


def test_what_is_shown_of_a_job_has_names_and_no_value(script, browser):
    """Every answer and page about the job, for each person who may see it."""
    a_host()
    bob = script("bob")
    given = post(
        bob, {"name": "HF_TOKEN", "value": CANARY, "secret": True}, {"name": "DEBUG", "value": "shown"}
    )
    env = given.json()["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["env"]
    assert env == [
        {"name": "DEBUG", "value": "shown"},
        {"name": "HF_TOKEN", "value": "", "secret": True},
    ]
    job = Job.objects.get()
    for person in ("root", "alice", "bob", "vera"):
        for path in (f"{JOBS}/{job.pk}", JOBS, f"/api/v1/jobs/{job.pk}", f"/api/v1/jobs/{job.pk}/events"):
            assert CANARY not in script(person).get(path).content.decode(), path
        for path in (f"/jobs/{job.pk}", f"/jobs/{job.pk}/history", "/jobs"):
            page = browser(person).get(path, follow=True)
            assert page.status_code == 200 and CANARY not in page.content.decode(), path
    clone = browser("bob").get(f"/jobs/{job.pk}/clone").content.decode()
    assert CANARY not in clone


def test_a_client_that_sends_a_job_back_must_give_inline_values_again(script):
    a_host()
    bob = script("bob")
    made = post(bob, {"name": "HF_TOKEN", "value": CANARY, "secret": True}).json()
    body = {"displayName": "again", "jobSpec": made["jobSpec"]}
    answer = bob.post(JOBS, body, content_type="application/json")
    assert answer.status_code == 400 and violation(answer)[1].endswith("env[0].value")
