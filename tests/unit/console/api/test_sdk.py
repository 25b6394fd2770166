"""Google's own SDK, unmodified, works with Trainyard."""

from __future__ import annotations

import importlib

import pytest
from django.utils import timezone
from google.api_core import exceptions
from google.oauth2.credentials import Credentials

from console.auth import tokens
from jobs.models import Job
from tests.unit.console.views.example_rows import a_host, a_job

POOLS = [
    {
        "machine_spec": {"machine_type": "n1-standard-4"},
        "replica_count": 1,
        "container_spec": {
            "image_uri": "host",
            "command": ["python3", "train.py"],
            "env": [{"name": "A", "value": "1"}],
        },
    },
    {"replica_count": 3, "container_spec": {"image_uri": "host", "command": ["python3", "train.py"]}},
]


@pytest.fixture(scope="module")
def aiplatform():
    """Import the SDK here and not at the top: the import takes seconds, and every test process collects this file."""
    return importlib.import_module("google.cloud.aiplatform")


@pytest.fixture
def sdk(aiplatform, live_server, cast, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")

    def init(who="bob", token=""):
        token = token or tokens.create(getattr(cast, who), "sdk", timezone.now())[1]
        aiplatform.init(
            project="default",
            location="us-central1",
            staging_bucket="gs://staging",
            api_endpoint=live_server.url + "/",  # with a slash at the end, as people often write it
            api_transport="rest",
            credentials=Credentials(token=token),
        )

    return init


def test_the_unmodified_sdk_submits_lists_gets_cancels_and_deletes(aiplatform, sdk, cast, project):
    sdk()
    job = aiplatform.CustomJob(display_name="from-sdk", worker_pool_specs=POOLS, labels={"team": "vision"})
    job.submit(timeout=3600, enable_web_access=True)
    row = Job.objects.get()
    assert row.replica_count == 4 and row.labels == {"team": "vision"} and row.spec["enableWebAccess"] is True
    assert job.resource_name == f"projects/default/locations/us-central1/customJobs/{row.pk}"
    assert (job.state.name, job.error.code if job.error else 0) == ("JOB_STATE_QUEUED", 0)
    found = aiplatform.CustomJob.list(filter='labels.team="vision" AND state="JOB_STATE_QUEUED"')
    assert [one.display_name for one in found] == ["from-sdk"]
    again = aiplatform.CustomJob.get(str(row.pk))
    assert again.job_spec.worker_pool_specs[1].replica_count == 3
    assert again.job_spec.scheduling.timeout.total_seconds() == 3600
    again.cancel()
    assert again.state.name == "JOB_STATE_CANCELLED" and again.error.code == 1 and again.end_time
    again.delete()
    assert aiplatform.CustomJob.list() == []
    a_job(project, cast.bob, host=a_host(), location_name="us-central1")
    (running,) = aiplatform.CustomJob.list()
    assert running.web_access_uris["workerpool0-0"].startswith("http://") and running.start_time


def test_the_sdk_shows_the_messages_of_the_api(aiplatform, sdk):
    sdk()
    wrong = [{**POOLS[0], "container_spec": {"image_uri": "Py Torch", "command": ["true"]}}]
    with pytest.raises(exceptions.BadRequest, match="image_uri"):
        aiplatform.CustomJob(display_name="x", worker_pool_specs=wrong).submit()
    with pytest.raises(exceptions.NotFound):
        aiplatform.CustomJob.get("12345")
    sdk("vera")
    with pytest.raises(exceptions.Forbidden, match="not do that"):
        aiplatform.CustomJob(display_name="x", worker_pool_specs=POOLS).submit()
    sdk(token="tyd_unknown")
    with pytest.raises(exceptions.Forbidden, match="token is not known"):
        aiplatform.CustomJob.list()
