"""Trials that have run for a while and have reported no metric of their study: mostly the program says another name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from django.db.models import Window
from django.db.models.functions import DenseRank

from agents.infra.texts import said_of
from jobs.models import Job, MetricSeries, Trial
from jobs.rules.lifecycle.states import JobState
from jobs.rules.list_text import list_text
from jobs.rules.tuning.study import StudySpec
from jobs.rules.tuning.trials import TrialState
from jobs.tuning import snapshot

# So long a program may take before its first report.
PATIENCE = timedelta(minutes=10)
# So many names are read, of all trials together and of each at least one more than are told; and so many are told.
MOST_READ, MOST_NAMES = 2_000, 20


def reason(study: StudySpec, rows: Sequence[Trial], now: datetime) -> str:
    """Which trials these are, what they reported instead, and the line that their program lacks; empty for none."""
    silent = _silent(study, {row.job_id: row.number for row in rows if _is_late(row, now)})
    numbers = [number for number, _names in silent.values()]
    return _sentence(study, numbers, {name for _number, names in silent.values() for name in names})


def of_jobs(study: StudySpec, numbers: Mapping[int, int]) -> dict[int, str]:
    """The same for each of these trials by itself, by its job. `numbers`: by their jobs those of trials that have run
    for PATIENCE."""
    silent = _silent(study, numbers)
    return {job: _sentence(study, [number], names) for job, (number, names) in silent.items()}


def of_job(job: Job, now: datetime) -> str:
    """The same of the trial that this job runs; empty if it runs none."""
    if not job.trial or job.state != JobState.RUNNING:
        return ""
    row = Trial.objects.select_related("tuning_job").filter(job=job).first()
    if row is None:
        return ""
    row.job = job
    return of_jobs(snapshot.study_of(row.tuning_job), {job.pk: row.number} if _is_late(row, now) else {}).get(
        job.pk, ""
    )


def _silent(study: StudySpec, late: Mapping[int, int]) -> dict[int, tuple[int, set[str]]]:
    """By job: the number of its trial, and what was reported of it instead."""
    if not late:
        return {}
    series = MetricSeries.objects.filter(run__job__in=list(late)).order_by()
    wanted = [metric.name for metric in study.objectives]
    heard = set(series.filter(name__in=wanted).values_list("run__job", flat=True).distinct())
    silent = {job: (number, set[str]()) for job, number in late.items() if job not in heard}
    if silent:
        place = Window(DenseRank(), partition_by="run__job", order_by="name")
        others = series.filter(run__job__in=list(silent)).annotate(place=place)
        most = max(MOST_READ // len(silent), MOST_NAMES + 1)
        for job, name in others.filter(place__lte=most).values_list("run__job", "name").distinct():
            silent[job][1].add(name)
    return silent


def _sentence(study: StudySpec, numbers: Sequence[int], seen: Collection[str]) -> str:
    if not numbers:
        return ""
    wanted = [metric.name for metric in study.objectives]
    known = {
        "numbers": list_text([str(number) for number in numbers], MOST_NAMES),
        "metrics": list_text(wanted),
        "line": f'print(json.dumps({{"{wanted[0]}": value, "step": step}}), flush=True)',
    }
    if not seen:
        return said_of(
            len(numbers),
            "Trial {numbers} has run for 10 minutes: no {metrics} yet, and nothing else seen. Its program reports it "
            "with, for example: {line}",
            "Trials {numbers} have run for 10 minutes: no {metrics} yet, and nothing else seen. Their program reports "
            "it with, for example: {line}",
            **known,
        )
    return said_of(
        len(numbers),
        "Trial {numbers} has run for 10 minutes: no {metrics} yet; seen: {seen}. Its program reports it with, for "
        "example: {line}",
        "Trials {numbers} have run for 10 minutes: no {metrics} yet; seen: {seen}. Their program reports it with, for "
        "example: {line}",
        seen=list_text(sorted(seen), MOST_NAMES),
        **known,
    )


def _is_late(row: Trial, now: datetime) -> bool:
    began = row.job.started_at
    runs = row.state == TrialState.ACTIVE and row.job.state == JobState.RUNNING
    return runs and began is not None and now - began >= PATIENCE
