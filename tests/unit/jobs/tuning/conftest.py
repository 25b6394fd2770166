"""A study over fake hosts, which obey at once: what its trials measure is said by the test."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
from django.utils import timezone

from agents.infra.clock import Clock
from jobs.models import Job, TuningJob
from jobs.rules.tuning.trials import Measurement
from jobs.scheduling import scheduler
from jobs.tuning import advance, measured, tuning_jobs

ASKED = {
    "displayName": "search",
    "maxTrialCount": 4,
    "parallelTrialCount": 2,
    "studySpec": {
        "metrics": [{"metricId": "loss", "goal": "MINIMIZE"}],
        "parameters": [
            {
                "parameterId": "lr",
                "doubleValueSpec": {"minValue": 0.001, "maxValue": 1.0},
                "scaleType": "UNIT_LOG_SCALE",
            },
            {"parameterId": "depth", "integerValueSpec": {"minValue": "1", "maxValue": "8"}},
        ],
        "algorithm": "RANDOM_SEARCH",
    },
    "trialJobSpec": {
        "workerPoolSpecs": [
            {
                "machineSpec": {},
                "replicaCount": "1",
                "containerSpec": {"imageUri": "host", "command": ["python3", "train.py"], "args": ["--fast"]},
            }
        ],
        "baseOutputDirectory": {"outputUriPrefix": "gs://own/out/"},
    },
}


def asked(**changes):
    return {**copy.deepcopy(ASKED), **changes}


@pytest.fixture
def study(project, alice, add_host, control_plane, monkeypatch):
    """study(document): submits it. `run`: everything that is due, until nothing is left to do."""
    host = add_host(cpus=64)
    reports: dict[int, measured.Measured] = {}
    monkeypatch.setattr(
        measured, "of_jobs", lambda jobs: {job.pk: reports[job.pk] for job in jobs if job.pk in reports}
    )
    made = SimpleNamespace(host=host, row=None, control_plane=control_plane)

    def submit(document=None, request_id=None, owner=alice):
        made.row = tuning_jobs.create(
            project, owner, document or asked(), "default", request_id, timezone.now()
        )
        return made

    def look():
        now = timezone.now()
        advance.advance(advance.due(now), Clock(now))
        scheduler.schedule(now)
        return host.reconcile(control_plane)

    def run():
        idle = 0
        while idle < 2:
            TuningJob.every.filter(due_at__isnull=False).update(due_at=timezone.now())
            idle = 0 if look() else idle + 1
        made.row.refresh_from_db()
        return made

    def end(number, code=0, loss=None, whole=True, **other):
        """The program of a trial ends."""
        job = Job.objects.get(trial_row__tuning_job=made.row, trial_row__number=number)
        values = {name: value for name, value in {"loss": loss, **other}.items() if value is not None}
        found = (Measurement(1, values, 2.0),) if values else ()
        reports[job.pk] = measured.Measured(found, tuple(values), whole)
        for run_id in [each for each in host.runs if each.startswith(f"{job.pk}-")]:
            host.end(control_plane, run_id, exit_code=code)

    made.submit, made.run, made.end, made.look, made.reports = submit, run, end, look, reports
    made.trials = lambda: list(made.row.trials.select_related("job").order_by("number"))
    return made
