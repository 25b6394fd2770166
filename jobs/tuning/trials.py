"""The trials of a tuning job as rows: each with a job of its own, which waits in the queue like any other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial

from django.contrib.auth.models import User

from agents.infra.refusals import Refused
from agents.infra.sql import InsertStatement, Parameter, SelectStatement
from agents.infra.texts import said
from jobs import services
from jobs.models import Trial, TuningJob
from jobs.projects import members
from jobs.rules.spec.custom_job import CustomJobSpec, to_document
from jobs.rules.spec.parse import parse_spec
from jobs.rules.tuning.arguments import spec_of_trial
from jobs.rules.tuning.study import LABEL
from jobs.rules.tuning.trials import TrialState
from jobs.scheduling import machine_types
from jobs.secrets import of_tuning_jobs
from jobs.services import TrialOfJob

MAX_NAME = 128

_insert = InsertStatement(Trial)
_first = SelectStatement(
    lambda: Trial.objects.filter(tuning_job=Parameter("study")).order_by("number").values_list("job")[:1]
)


def request(tuning_job: TuningJob, number: int, now: datetime) -> Trial:
    """A new trial, with its job in the queue. In the caller's transaction. Raises InvalidDocument and the classes of
    refusals.py."""
    return requests(tuning_job, now)(number)


def requests(tuning_job: TuningJob, now: datetime) -> Callable[[int], Trial]:
    """The same for several numbers: what their jobs have in common is read once, at the first.

    No hint is sent for their jobs (services.submit): after the commit, the caller makes a scheduling pass, or sends
    `hints.schedule`."""
    shared = cache(partial(_shared, tuning_job))

    def make(number: int) -> Trial:
        common = shared()
        job = services.submit(
            tuning_job.project,
            common.owner,
            _document(tuning_job, common, number),
            tuning_job.location_name,
            None,
            now,
            common.may_prioritize,
            common.first,
            trial=TrialOfJob(number, common.values),
        )
        made = Trial(
            tuning_job=tuning_job, number=number, state=TrialState.REQUESTED, job=job, job_state=job.state
        )
        return _insert(made)

    return make


@dataclass(frozen=True)
class _Shared:
    """What the jobs of all trials have in common. `first`: all trials bring what this job brought: the same commit,
    the same image."""

    owner: User
    may_prioritize: bool
    first: int | None
    values: Mapping[tuple[int, str], str]
    spec: CustomJobSpec


def _shared(tuning_job: TuningJob) -> _Shared:
    owner = owner_of(tuning_job)
    return _Shared(
        owner,
        tuning_job.may_prioritize and members.may_prioritize(tuning_job.project, owner),
        next(iter(_first.column(study=tuning_job.pk)), None),
        of_tuning_jobs.values_of(tuning_job),
        parse_spec(tuning_job.trial_spec, machine_types.of_location(tuning_job.location_name)),
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


def _document(tuning_job: TuningJob, common: _Shared, number: int) -> dict[str, object]:
    suffix = f"-trial-{number}"
    metrics = [metric["metricId"] for metric in tuning_job.study["metrics"]]
    return {
        "displayName": tuning_job.display_name[: MAX_NAME - len(suffix)] + suffix,
        "labels": {**tuning_job.labels, LABEL: str(tuning_job.pk)},
        "jobSpec": to_document(spec_of_trial(common.spec, number, metrics)),
    }
