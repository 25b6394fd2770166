"""Each error message, read alone as curl prints it, names the field and the values that are allowed."""

from __future__ import annotations

import pytest

from jobs.models import Run
from tests.unit.console.api.conftest import JOBS
from tests.unit.console.views.example_rows import a_host, a_job

TYPE = "/api/v1/machineTypes/lab-2"
LIMIT = "/api/v1/projects/default/quotas/running"


@pytest.fixture
def job(cast, project):
    return a_job(project, cast.bob, host=a_host())


@pytest.mark.parametrize(
    ("method", "path", "body", "told"),
    [
        ("get", "/api/v1/jobs/{job}/events?pageToken=zz", None, "pageToken must be a whole number"),
        ("get", "/api/v1/jobs/{job}/events?kind=zz", None, "kind must be one of state, replica"),
        ("get", "/api/v1/jobs/{job}/samples?after=zz", None, "after must be a time such as 2026-"),
        ("get", JOBS + "?pageSize=-1", None, "pageSize must be a whole number of at least 0, not '-1'"),
        ("get", "{log}/search?q=x&from=-1", None, "from must be a whole number of at least 0"),
        ("put", LIMIT, {"limit": 10**12}, "The limit must be a whole number from 0 to 1000000000"),
        ("put", LIMIT, {"limit": "ten"}, "limit must be a number from 0 to 1000000000; null takes"),
        ("put", LIMIT, {"limit": 10**400}, "limit must be a number from 0 to 1000000000"),
        (
            "patch",
            "/api/v1/projects/default",
            {"weight": "x"},
            "weight must be a number from 0.01 to 1000000",
        ),
        ("put", TYPE, {"cpus": "x"}, "cpus must be a number from 0.01 to 4096."),
        ("put", TYPE, {"cpus": 0.001}, "cpus: must be from 0.01 to 4096."),
        ("put", TYPE, {"cpus": 1, "memoryMb": 0.5}, "memoryMb must be a whole number from 0 to 67108864."),
        ("get", "/api/v1/jobs/{job}/events?replica=zz", None, "replica must be one of workerpool0-0"),
        ("get", "/api/v1/jobs/{job}/samples?replica=zz", None, "replica must be one of workerpool0-0"),
        ("get", "/api/v1/jobs/{job}/samples?run=zz", None, "run must be the id of a run of this job"),
        ("get", "/api/v1/jobs/{job}/reports?run=zz", None, "run must be the id of a run of this job"),
        ("get", "/api/v1/jobs/{job}/reports?source=zz", None, "source must be one of hypertune, file"),
        ("patch", "/api/v1/locations/default", {"projects": ["a\0"]}, "projects holds NUL or half of a"),
        ("put", "/api/v1/projects/default/templates/t", {"location": "\ud800"}, "location holds NUL or half"),
        ("post", "/api/v1/people", {}, "name: This field cannot be blank."),
        ("post", "/api/v1/hosts/{host}:stopRun", {}, "run is required: the id of a run"),
    ],
)
def test_a_refusal_names_the_field_and_the_allowed_values(script, job, method, path, body, told):
    run = Run.objects.get()
    log = f"/api/v1/jobs/{job.pk}/replicas/{run.replica.name}/log"
    path = path.format(job=job.pk, log=log, host=run.host.name)
    call = getattr(script("root"), method)
    answer = call(path) if body is None else call(path, body, content_type="application/json")
    assert answer.status_code == 400 and answer.json()["error"]["message"].startswith(told), answer.json()
