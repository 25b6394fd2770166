"""One act on many jobs: each in a transaction of its own, so that one that is refused stops no other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from agents.infra.texts import said
from jobs import labels, services
from jobs.models import Job
from jobs.rules.lifecycle.states import TERMINAL
from jobs.rules.spec.parse import InvalidDocument
from jobs.services import Refused, Unavailable

OVER = said("It is over already.")


@dataclass(frozen=True, slots=True)
class Outcome:
    """`done`: the jobs, or the copies that were made. `refused`: the others, each with the reason as a sentence."""

    done: list[Job] = field(default_factory=list)
    refused: list[tuple[Job, str]] = field(default_factory=list)


def cancel(jobs: Iterable[Job], actor: str, now: datetime) -> Outcome:
    def act(job: Job) -> Job:
        if job.state in TERMINAL:
            raise Refused("state", OVER)
        services.cancel(job, actor, now)
        return job

    return _each(jobs, act)


def delete(jobs: Iterable[Job], actor: str, now: datetime) -> Outcome:
    def act(job: Job) -> Job:
        services.delete(job, actor, now)
        return job

    return _each(jobs, act)


def label(
    jobs: Iterable[Job], given: Mapping[str, str], taken: Collection[str], actor: str, now: datetime
) -> Outcome:
    """Give each job some labels, and take others away by their keys."""

    def act(job: Job) -> Job:
        labels.take(job, taken, actor, now)
        labels.give(job, given, actor, now)
        return job

    return _each(jobs, act)


def copy(
    jobs: Iterable[Job], user: User, request: str, now: datetime, prioritized: Collection[int] = ()
) -> Outcome:
    """Submit the document of each job once more, to the same project and location.

    `request`: sent twice, it makes no second copies. `prioritized`: the projects in which the person may use any
    priority.
    """

    def act(job: Job) -> Job:
        return services.rerun(job, user, f"{request}-{job.pk}", now, job.project_id in prioritized)

    return _each(jobs, act)


def _each(jobs: Iterable[Job], act: Callable[[Job], Job]) -> Outcome:
    outcome = Outcome()
    for job in jobs:
        try:
            with transaction.atomic():
                outcome.done.append(act(job))
        except (Refused, Unavailable) as refused:
            outcome.refused.append((job, refused.message))
        except InvalidDocument as invalid:
            outcome.refused.append((job, str(invalid)))
    return outcome
