"""Jobs of trials that failed by a fault of hosts: what their histories say, and which of them no host can start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from django.db.models import F

from jobs.models import Job, Run, Transition
from jobs.rules.lifecycle.history_kinds import JOB
from jobs.rules.lifecycle.states import JobState
from jobs.rules.tuning.lost_trials import FAULTS_OF_HOSTS

# The refusal of a start by what its order says: each host would refuse the same.
BAD_ORDER = "bad_order"


@dataclass(frozen=True, slots=True)
class LostJobs:
    """`causes`: by job, what its history says: the message of its error names no host. `by_order`: those whose starts
    were refused by what their document says, which is no fault of a host."""

    causes: dict[int, str] = field(default_factory=dict)
    by_order: frozenset[int] = frozenset()


def of_jobs(jobs: Iterable[Job]) -> LostJobs:
    """Two queries for all."""
    lost = [job.pk for job in jobs if is_lost(job)]
    if not lost:
        return LostJobs()
    ends = Transition.objects.filter(job__in=lost, subject=JOB, to_state=JobState.FAILED)
    refused = Run.objects.filter(job__in=lost, refusal=BAD_ORDER, attempt=F("job__attempt"))
    return LostJobs(
        dict(ends.order_by("pk").values_list("job", "cause")),
        frozenset(refused.order_by().values_list("job", flat=True)),
    )


def is_lost(job: Job) -> bool:
    return job.state == JobState.FAILED and job.error_code in FAULTS_OF_HOSTS
