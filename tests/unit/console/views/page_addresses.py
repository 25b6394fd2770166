"""The address of each page, filled with what is there: rows of each kind, which a test may change."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from console import saved_views
from console.views.urls import urlpatterns
from jobs.notifications import targets
from tests.unit.console.views.example_rows import (
    a_doubted_run,
    a_host,
    a_job,
    a_machine_type,
    a_pipeline,
    a_recorded_shell,
    a_stored_file,
    a_template,
    a_tuning_job,
)


def example_values(project, cast):
    """What stands in the addresses for each of their parts."""
    host = a_host(gpus=1)
    job = a_job(project, cast.bob, host=host)
    a_pipeline(job, "digits")
    return {
        "job_id": job.pk,
        "tuning_id": a_tuning_job(job).pk,
        "model_id": "digits",
        "number": 1,
        "host_id": host.pk,
        **{"kind": "blobs", "digest": "a" * 64},
        "gpu_id": host.gpus.get().pk,
        "what": "recheck",
        "topic": "jobs",
        "view_id": saved_views.save(cast.alice, project, "ours", "state=active", timezone.now()).pk,
        "stray_id": a_doubted_run(host).pk,
        "act": "stop",
        "token_id": 1,
        "passkey_id": 1,
        "ticket": "no-ticket",
        "session_id": "0123456789abcdef",
        "location": "default",
        "type_id": a_machine_type().pk,
        "replica": "workerpool0-0",
        "template_id": a_template(project).pk,
        "run_id": job.runs.get().pk,
        "key": a_recorded_shell(job.runs.get(), cast.bob).key,
        "token": "x",
        "project": "default",
        "target_id": targets.add(project, "slack", "https://x.example/", [], 1.0, "alice", timezone.now())[
            0
        ].pk,
        "user_id": User.objects.create_user("yves").pk,
        "sha256": a_stored_file(project, "ours", "a/b.txt"),
        "bucket": "ours",
        "name": "a/b.txt",
    }


@pytest.fixture
def addresses(cast, project, no_host_answers):
    """addresses("job") returns the address of the page of a job."""
    return filled_with(example_values(project, cast))


def filled_with(values):
    def address(name):
        pattern = next(p for p in urlpatterns if p.name == name).pattern
        return f"/{pattern}" if not pattern.converters else "/" + _filled(str(pattern), values)

    return address


def _filled(route, values):
    for name, value in values.items():
        for kind in ("int", "str", "slug", "path"):
            route = route.replace(f"<{kind}:{name}>", str(value))
    return route
