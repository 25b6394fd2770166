"""What Google's APIs have and Trainyard does not is answered with 501 and its name, as JSON, on all their addresses."""

from __future__ import annotations

import importlib

import pytest
from django.utils import timezone
from google.api_core import exceptions
from google.oauth2.credentials import Credentials

from console.auth import tokens
from tests.unit.console.api.conftest import JOBS
from tests.unit.console.views.example_rows import a_job

P = "projects/default/locations/us-central1"


@pytest.mark.parametrize(
    ("method", "path", "named"),
    [
        ("get", f"/v1/{P}/datasets", "datasets of the Vertex AI API"),
        ("get", f"/v1/{P}/datasets/7", "datasets of the Vertex AI API"),
        ("post", f"/v1/{P}/models:upload", "models:upload of the Vertex AI API"),
        ("post", f"/v1/{P}/endpoints/7:predict", "endpoints:predict of the Vertex AI API"),
        ("post", f"/v1/{P}/pipelineJobs", "pipelineJobs of the Vertex AI API"),
        ("get", f"/v1beta1/{P}/tensorboards", "tensorboards of the Vertex AI API"),
        ("get", f"/ui/{P}/studies", "studies of the Vertex AI API"),
        (
            "post",
            "/v1beta1/publishers/google/models/gemini:generateContent",
            "publishers:generateContent of the",
        ),
        ("get", "/v1/projects/default", "the Vertex AI API"),
        ("post", "/v2/entries:write", "entries:write of the Cloud Logging API"),
        ("post", "/v2/entries:tail", "entries:tail of the Cloud Logging API"),
        ("get", "/v2/projects/default/sinks", "sinks of the Cloud Logging API"),
        ("get", "/storage/v1/b/bucket/notificationConfigs", "notificationConfigs of the Cloud Storage API"),
        ("get", "/storage/v1/projects/default/hmacKeys", "hmacKeys of the Cloud Storage API"),
        ("post", "/batch/storage/v1", "the Cloud Storage API"),
        ("get", "/v1/<script>alert(1)</script>", "script"),
    ],
)
def test_what_is_not_here_is_501_with_its_name(script, method, path, named):
    for client in (script("bob"), script()):
        answer = getattr(client, method)(path)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["status"]) == (501, 501, "UNIMPLEMENTED"), path
        assert f"Trainyard does not have {named}" in error["message"] and "<" not in error["message"]
        assert answer["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("get", f"{JOBS}/12345"),
        ("get", f"{JOBS}/abc"),
        ("get", f"/v1/{P}/operations/abc"),
        ("get", "/api/v1/nothing"),
        ("get", "/api/v1/projects/none"),
    ],
)
def test_what_could_be_here_and_is_not_stays_404(script, method, path):
    answer = getattr(script("bob"), method)(path)
    assert (answer.status_code, answer.json()["error"]["status"]) == (404, "NOT_FOUND")


def test_custom_jobs_are_the_same_under_v1beta1(script, cast, project):
    job = a_job(project, cast.bob, location_name="us-central1")
    beta, usual = JOBS.replace("/v1/", "/v1beta1/"), script("bob")
    assert usual.get(f"{beta}/{job.pk}").json() == usual.get(f"{JOBS}/{job.pk}").json()
    assert usual.get(beta).json() == usual.get(JOBS).json()


def test_a_list_honours_its_location(script, cast, project):
    here = a_job(project, cast.bob, location_name="us-central1", display_name="here")
    there = a_job(project, cast.bob, location_name="lab", display_name="there")
    ours = a_job(project, cast.bob, location_name="default", display_name="ours")

    def listed(location):
        answer = script("bob").get(f"/v1/projects/default/locations/{location}/customJobs").json()
        return {one["displayName"] for one in answer["customJobs"]}

    assert listed("us-central1") == {"here"} and listed("lab") == {"there"} and listed("default") == {"ours"}
    assert listed("europe-west4") == set() and listed("-") == {"here", "there", "ours"}
    assert len({here.pk, there.pk, ours.pk}) == 3


def test_the_unmodified_storage_library_shows_what_is_missing(live_server, cast, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    storage = importlib.import_module("google.cloud.storage")
    token = tokens.create(cast.bob, "storage", timezone.now())[1]
    client = storage.Client(
        project="default",
        credentials=Credentials(token=token),
        client_options={"api_endpoint": live_server.url},
    )
    with pytest.raises(exceptions.MethodNotImplemented, match="the Cloud Storage API"):
        client.get_service_account_email()
    with pytest.raises(exceptions.MethodNotImplemented, match="the Cloud Storage API"):
        list(client.list_hmac_keys())


def test_asking_for_it_fills_no_log(script, caplog):
    script().get(f"/v1/{P}/models")
    assert "Not Implemented" not in caplog.text
