"""A study over fake hosts, which obey at once: what its trials measure is said by the test."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
from django.db.models import F
from django.utils import timezone

from agents.infra.clock import Clock
from jobs.metrics import points
from jobs.models import MetricsProof, Run, Trial, TuningJob
from jobs.rules.metrics.journal import Report
from jobs.scheduling import scheduler
from jobs.tuning import advance, tuning_jobs

HYPERTUNE = "hypertune"
MOST_TURNS = 2_000

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
def study(project, alice, add_host, control_plane):
    """study(document): submits it. `run`: everything that is due, until nothing is left to do."""
    host = add_host(cpus=64)
    made = SimpleNamespace(host=host, row=None, control_plane=control_plane)

    def submit(document=None, request_id=None, owner=alice, may_prioritize=False):
        made.row = tuning_jobs.create(
            project, owner, document or asked(), "default", request_id, timezone.now(), may_prioritize
        )
        return made

    def look():
        now = timezone.now()
        advance.advance(advance.due(now), Clock(now))
        scheduler.schedule(now)
        return host.reconcile(control_plane)

    def run():
        idle, turns = 0, 0
        while idle < 2:
            turns += 1
            assert turns < MOST_TURNS, "the study comes to no rest"
            TuningJob.every.filter(due_at__isnull=False).update(due_at=timezone.now())
            idle = 0 if look() else idle + 1
        made.row.refresh_from_db()
        return made

    def job_of(number):
        """By itself: joined to the runs of a thousand trials it takes minutes before PostgreSQL has counted rows."""
        return Trial.objects.values_list("job", flat=True).get(tuning_job=made.row, number=number)

    def report(number, step=1, **values):
        """The program of a trial reports metrics."""
        now = timezone.now()
        for run in Run.objects.filter(job=job_of(number)):
            points.add(
                run.pk,
                {
                    (name, HYPERTUNE): [Report(HYPERTUNE, name, step, value, now.timestamp())]
                    for name, value in values.items()
                },
                now,
            )

    def end(number, code=0, whole=True, step=1, **values):
        """It reports what it measured, and ends. `whole`: all its reports are here."""
        report(number, step, **values)
        job = job_of(number)
        for run_id in [each for each in host.runs if each.startswith(f"{job}-")]:
            host.end(control_plane, run_id, exit_code=code)
        arrive(number, whole)

    def arrive(number, whole=True):
        Run.objects.filter(job=job_of(number)).update(
            metrics_proof=MetricsProof.WHOLE if whole else "",
            metrics_read=F("log_stored"),
            log_complete_at=timezone.now(),
        )

    made.submit, made.run, made.end, made.look = submit, run, end, look
    made.report, made.arrive = report, arrive
    made.trials = lambda: list(made.row.trials.select_related("job").order_by("number"))
    return made
