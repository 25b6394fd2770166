"""The trials of a tuning job as rows: each with a job of its own, which waits in the queue like any other."""

from __future__ import annotations

from datetime import datetime

from django.contrib.auth.models import User

from agents.infra.refusals import Refused
from agents.infra.texts import said
from jobs import services
from jobs.models import Job, Trial, TuningJob
from jobs.projects import members
from jobs.rules.spec.custom_job import to_document
from jobs.rules.spec.parse import parse_spec
from jobs.rules.tuning.arguments import spec_of_trial
from jobs.rules.tuning.study import LABEL
from jobs.rules.tuning.trials import TrialState
from jobs.scheduling import machine_types
from jobs.secrets import of_tuning_jobs
from jobs.services import TrialOfJob

MAX_NAME = 128


def request(tuning_job: TuningJob, number: int, now: datetime) -> Trial:
    """A new trial, with its job in the queue. In the caller's transaction. Raises InvalidDocument and the classes of
    refusals.py."""
    owner = owner_of(tuning_job)
    first = (
        Job.every.filter(trial_row__tuning_job=tuning_job).order_by("pk").values_list("pk", flat=True).first()
    )
    job = services.submit(
        tuning_job.project,
        owner,
        _document(tuning_job, number),
        tuning_job.location_name,
        None,
        now,
        tuning_job.may_prioritize and members.may_prioritize(tuning_job.project, owner),
        # All trials bring what the first one brought: the same commit, the same image.
        first,
        trial=TrialOfJob(number, of_tuning_jobs.values_of(tuning_job)),
    )
    return Trial.objects.create(
        tuning_job=tuning_job, number=number, state=TrialState.REQUESTED, job=job, job_state=job.state
    )


def owner_of(tuning_job: TuningJob) -> User:
    """The person for whom trials are submitted. Raises Refused where nobody may submit them any more."""
    owner = tuning_job.owner
    if owner is None:
        raise Refused(
            "owner", said("Its owner {person} is not there any more.", person=tuning_job.owner_name)
        )
    if not members.may_submit(tuning_job.project, owner):
        raise Refused(
            "owner",
            said(
                "Its owner {person} may not submit jobs to project {project} any more.",
                person=tuning_job.owner_name,
                project=tuning_job.project.name,
            ),
        )
    return owner


def _document(tuning_job: TuningJob, number: int) -> dict[str, object]:
    suffix = f"-trial-{number}"
    metrics = [metric["metricId"] for metric in tuning_job.study["metrics"]]
    types = machine_types.of_location(tuning_job.location_name)
    return {
        "displayName": tuning_job.display_name[: MAX_NAME - len(suffix)] + suffix,
        "labels": {**tuning_job.labels, LABEL: str(tuning_job.pk)},
        "jobSpec": to_document(spec_of_trial(parse_spec(tuning_job.trial_spec, types), number, metrics)),
    }
