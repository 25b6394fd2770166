"""A study of a thousand trials, fifty at once: no step of it asks the database more than in a small study."""

from __future__ import annotations

from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.infra import shared_answers
from agents.infra.clock import Clock
from jobs.models import Job, Trial, TuningJob
from jobs.scheduling import scheduler
from jobs.tuning import advance
from tests.harness.examples import examples_here
from tests.unit.jobs.tuning.conftest import asked

PARALLEL = 50
# Many more than are needed. A look that fails is logged, and would be repeated for ever.
MOST_LOOKS = 20
MACHINE = {"machineSpec": {"machineType": "n1-standard-1"}}


def document(trials):
    made = asked(maxTrialCount=trials, parallelTrialCount=PARALLEL)
    made["trialJobSpec"]["workerPoolSpecs"][0] |= MACHINE
    return made


def with_history(study, trials):
    """A study of which all trials but the last fifty have ended."""
    study.submit(document(trials))
    TuningJob.every.filter(pk=study.row.pk).update(seed=7)
    first = study.trials()[0]
    ended, now = trials - PARALLEL, timezone.now()
    Trial.objects.filter(pk=first.pk).update(number=trials - PARALLEL + 1)
    copies = [
        Job(**{**values_of(first.job), "id": first.job_id + number, "state": "SUCCEEDED", "due_at": None})
        for number in range(1, ended + 1)
    ]
    Job.every.bulk_create(copies)
    Trial.objects.bulk_create(
        Trial(
            tuning_job=study.row,
            number=number,
            state="SUCCEEDED",
            job=job,
            job_state="SUCCEEDED",
            parameters={"lr": 0.001 + number / 2_000, "depth": 1 + number % 8},
            final={"step": 1, "elapsed": 1.0, "metrics": {"loss": 1 + number / 1_000}},
            measurements=[{"step": 1, "elapsed": 1.0, "metrics": {"loss": 1.0}}] * 100,
            started_at=now,
            ended_at=now,
        )
        for number, job in enumerate(copies, 1)
    )


def values_of(job):
    return {field.attname: getattr(job, field.attname) for field in Job._meta.concrete_fields}


def counted(step):
    # What a process keeps for some seconds would be read again, or not, by how fast this machine is.
    shared_answers.forget_all()
    with CaptureQueriesContext(connection) as queries:
        step()
    return len(queries)


def steps(study):
    """The queries of each step: asking for the trials, drawing them, taking their results, ending the study."""

    def look():
        advance.advance([study.row.pk], Clock())

    found = [counted(look), counted(look), counted(look)]
    for _ in range(MOST_LOOKS):
        if len(study.trials()) == study.row.max_trials:
            break
        look()
    assert len(study.trials()) == study.row.max_trials, "the looks ask for no more trials"
    scheduler.schedule(timezone.now())
    found.append(counted(look))
    assert Trial.objects.filter(tuning_job=study.row, state="ACTIVE").count() == PARALLEL
    study.run()
    for trial in study.row.trials.filter(state="ACTIVE"):
        study.end(trial.number, loss=0.5)
    found.append(counted(look))
    study.run()
    assert study.row.state == "SUCCEEDED"
    assert Trial.objects.filter(tuning_job=study.row, state="SUCCEEDED").count() == study.row.max_trials
    return found


def test_queries_do_not_grow_with_the_trials_that_are_over(study, monkeypatch):
    monkeypatch.setattr("jobs.tuning.drawing.DRAW_FOR_S", 60.0)
    study.host.row.memory_mb = 1 << 20
    study.host.row.save()
    with_history(study, 60)
    small = steps(study)
    with_history(study, examples_here(1_000))
    large = steps(study)
    assert all(now <= before + 5 for now, before in zip(large, small, strict=True)), (small, large)
