"""`POST /api/v1/jobs/N:rerun`: the same job once more."""

from __future__ import annotations

import json

from django.utils import timezone

from jobs import services
from jobs.models import Job
from tests.unit.console.views.example_rows import document


def test_rest_submits_a_job_once_more(script, cast, project):
    job = services.submit(project, cast.bob, document(), "default", None, timezone.now())
    bob, address = script("bob"), f"/api/v1/jobs/{job.pk}:rerun"
    told = [send(bob, address, {"requestId": "again"}).json()["id"] for _ in range(2)]
    assert told[0] == told[1] != str(job.pk) and Job.objects.get(pk=told[0]).cloned_from == job.pk
    assert send(bob, address, {}).json()["id"] not in (told[0], str(job.pk))
    assert send(script("vera"), address, {}).status_code == 403
    assert send(script("charlie"), address, {}).status_code == 404


def send(client, address, body):
    return client.post(address, json.dumps(body), content_type="application/json")
