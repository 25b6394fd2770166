"""Migrations that fill new columns and tables from the rows that are there, on SQLite and PostgreSQL."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.harness.services import Postgres
from tests.unit.jobs.models.test_migrations import ROOT, environment

# A database of the version before, with three jobs, one of which is over; then as it is now.
UPGRADE = """
import json
import django
django.setup()
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone

call_command("migrate", "jobs", "0012", verbosity=0)
apps = MigrationLoader(connection).project_state(("jobs", "0012_index_missing_runs")).apps
project, _ = apps.get_model("jobs", "Project").objects.get_or_create(name="one", created_at=timezone.now())
now = timezone.now()
common = {"project": project, "location_name": "default", "owner_name": "ada", "spec": {}, "replica_count": 1,
          "created_at": now, "updated_at": now, "queued_at": now}
asked = json.dumps([[0, 1, 1.0, 100, "NVIDIA_L4", 8], [1, 3, 1.0, 100, "NVIDIA_L4", 2], [2, 5, 1.0, 100, "", 0]])
for pk, state, labels, request in (
    (1, "RUNNING", {"team": "nlp", "stage": ""}, asked),
    (2, "SUCCEEDED", {"team": "cv"}, json.dumps([[0, 1, 1.0, 100, "", 0]])),
    (3, "FAILED", {}, asked),
    (4, "QUEUED", {"team": "nlp"}, ""),
):
    apps.get_model("jobs", "Job").objects.create(
        pk=pk, state=state, display_name=str(pk), labels=labels, resource_request=request, **common
    )
call_command("migrate", verbosity=0)

from django.db.utils import DatabaseError
from jobs.models import Job, JobLabel
try:
    Job.every.filter(pk=2).update(state="RUNNING")
    guarded = False
except DatabaseError:
    guarded = True
rows = JobLabel.objects.order_by("job", "key").values_list("job", "project", "key", "value", "added_by")
print(json.dumps({
    "labels": [[job, owner == project.pk, key, value, by] for job, owner, key, value, by in rows],
    "gpus": list(Job.every.order_by("pk").values_list("gpu_count", flat=True)),
    "guarded": guarded,
}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_jobs_that_are_there_get_their_labels_and_gpus_counted(tmp_path, kind):
    postgres = Postgres().start() if kind == "postgresql" else None
    try:
        url = postgres.create_database("one") if postgres else ""
        done = subprocess.run(
            [sys.executable, "-c", UPGRADE],
            cwd=ROOT,
            env=environment(tmp_path, url),
            text=True,
            capture_output=True,
            timeout=240,
        )
    finally:
        if postgres:
            postgres.close()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "labels": [
            [1, True, "stage", "", ""],
            [1, True, "team", "nlp", ""],
            [2, True, "team", "cv", ""],
            [4, True, "team", "nlp", ""],
        ],
        "gpus": [14, 0, 14, 0],
        "guarded": True,
    }
