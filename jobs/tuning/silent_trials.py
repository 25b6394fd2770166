"""Trials that have run for a while and have reported no metric of their study: mostly the program says another name."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from agents.infra.texts import said_of
from jobs.models import MetricSeries, Trial
from jobs.rules.lifecycle.states import JobState
from jobs.rules.list_text import list_text
from jobs.rules.tuning.study import StudySpec
from jobs.rules.tuning.trials import TrialState

# So long a program may take before its first report.
PATIENCE = timedelta(minutes=10)
# So many names are read, and so many are told.
MOST_READ, MOST_NAMES = 2_000, 20


def reason(study: StudySpec, rows: Sequence[Trial], now: datetime) -> str:
    """Which trials these are, what they reported instead, and the line that their program lacks; empty for none."""
    late = {row.job_id: row.number for row in rows if _is_late(row, now)}
    if not late:
        return ""
    series = MetricSeries.objects.filter(run__job__in=list(late)).order_by()
    wanted = [metric.name for metric in study.objectives]
    heard = set(series.filter(name__in=wanted).values_list("run__job", flat=True).distinct())
    silent = [job for job in late if job not in heard]
    if not silent:
        return ""
    others = series.filter(run__job__in=silent).order_by("name").values_list("name", flat=True)
    names = sorted(others.distinct()[:MOST_READ])
    known = {
        "numbers": list_text([str(late[job]) for job in silent], MOST_NAMES),
        "metrics": list_text(wanted),
        "line": f'print(json.dumps({{"{wanted[0]}": value, "step": step}}), flush=True)',
    }
    if not names:
        return said_of(
            len(silent),
            "Trial {numbers} has run for 10 minutes: no {metrics} yet, and nothing else seen. Its program reports it "
            "with, for example: {line}",
            "Trials {numbers} have run for 10 minutes: no {metrics} yet, and nothing else seen. Their program reports "
            "it with, for example: {line}",
            **known,
        )
    return said_of(
        len(silent),
        "Trial {numbers} has run for 10 minutes: no {metrics} yet; seen: {seen}. Its program reports it with, for "
        "example: {line}",
        "Trials {numbers} have run for 10 minutes: no {metrics} yet; seen: {seen}. Their program reports it with, for "
        "example: {line}",
        seen=list_text(names, MOST_NAMES),
        **known,
    )


def _is_late(row: Trial, now: datetime) -> bool:
    began = row.job.started_at
    runs = row.state == TrialState.ACTIVE and row.job.state == JobState.RUNNING
    return runs and began is not None and now - began >= PATIENCE
