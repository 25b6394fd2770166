"""Why a study waits although a trial has ended: the rest of what its program reported is not here yet."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from agents.infra.texts import join, said, said_of
from jobs.lifecycle.snapshot import UNREACHABLE_STATUSES
from jobs.logs import storage
from jobs.models import Run, Trial, TuningJob
from jobs.projects import log_storage
from jobs.rules.list_text import list_text


def reason(tuning_job: TuningJob, rows: Sequence[Trial], numbers: Collection[int]) -> str:
    """Empty where it waits for no such trial."""
    if not numbers:
        return ""
    late = said_of(
        len(numbers),
        "Trial {numbers} has ended, and waits for the rest of its metrics.",
        "Trials {numbers} have ended, and wait for the rest of their metrics.",
        numbers=list_text([str(number) for number in sorted(numbers)]),
    )
    why = _why(tuning_job, [row.job_id for row in rows if row.number in numbers])
    return join(" ", [late, why]) if why else late


def _why(tuning_job: TuningJob, jobs: Collection[int]) -> str:
    if storage.is_disk_low():
        return said("The disk of this console is nearly full: hosts keep the rest until there is room.")
    runs = Run.objects.filter(job__in=jobs)
    if not log_storage.held_runs().isdisjoint(runs.values_list("pk", flat=True)):
        return log_storage.warning(tuning_job.project)
    silent = runs.filter(metrics_proof="", host__status__in=UNREACHABLE_STATUSES)
    hosts = sorted(set(silent.values_list("host__name", flat=True)))
    return said("No answer from {hosts}.", hosts=list_text(hosts)) if hosts else ""
