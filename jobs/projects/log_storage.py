"""What the stored logs of projects with a limit take: measured by the sweep, told at each level, stopped at the last.

The rules and the texts are in rules/scheduling/log_storage.py. A log that is not stored any more is not lost: its host
keeps it, as it does while the disk of the console is nearly full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F, Q, Sum
from django.db.models.functions import Least

from agents.infra.shared_answers import SharedAnswers
from agents.infra.sql import Parameter, SelectStatement
from jobs.models import Job, LogGap, LogStorage, Project, Quota, RecordingState, Run, ShellSession
from jobs.rules.scheduling import log_storage as rules
from jobs.rules.scheduling.quota import Metric

RELIED_FOR = timedelta(seconds=2)
_held: SharedAnswers[str, frozenset[str]] = SharedAnswers(RELIED_FOR, 1)
_high_projects: SharedAnswers[str, frozenset[int]] = SharedAnswers(RELIED_FOR, 1)
_high = SelectStatement(
    lambda: (
        LogStorage.objects.filter(project=Parameter("project"), level__gt=0)
        .order_by()
        .values_list("project__name", "level", "stored", "limit_gb")
    )
)


@dataclass(frozen=True, slots=True)
class Crossing:
    """The logs of a project have reached a higher level than before."""

    project: Project
    level: int
    text: str


def measure(now: datetime) -> list[Crossing]:
    """Measure every project with a limit. Returns the levels that were reached since the last time."""
    limits = Quota.objects.filter(metric=Metric.LOG_GB, user=None, each=False).select_related("project")
    rows = list(limits.order_by("project"))
    LogStorage.objects.exclude(project__in=[row.project_id for row in rows]).delete()
    if not rows:
        return []
    known = {row.project_id: row for row in LogStorage.objects.select_for_update(no_key=True)}
    taken = stored_bytes([row.project_id for row in rows])
    crossings = []
    for row in rows:
        stored, before = taken.get(row.project_id, 0), known.get(row.project_id)
        old = before.level if before else 0
        level = rules.level_of(stored, row.value, old)
        since = before.level_at if before and old == level else now
        LogStorage.objects.update_or_create(
            project_id=row.project_id,
            defaults={"stored": stored, "limit_gb": row.value, "level": level, "level_at": since},
        )
        if level > old:
            crossings.append(
                Crossing(row.project, level, rules.text(row.project.name, level, stored, row.value))
            )
    return crossings


def stored_bytes(projects: Sequence[int]) -> dict[int, int]:
    """How many bytes of logs and of recordings of shells are stored for each of these projects, without jobs that were
    deleted. Gaps store none: a program can make one of terabytes with one call."""
    runs = Run.objects.filter(job__project__in=projects, job__deleted_at=None, log_stored__gt=0)
    reached = runs.order_by().values_list("job__project").annotate(Sum("log_stored"))
    found: dict[int, int] = dict(reached)
    here = Least(F("end"), F("run__log_stored")) - F("start")
    gaps = LogGap.objects.filter(
        run__job__project__in=projects, run__job__deleted_at=None, start__lt=F("run__log_stored")
    )
    for project, missing in gaps.order_by().values_list("run__job__project").annotate(missing=Sum(here)):
        found[project] = max(found.get(project, 0) - missing, 0)
    shells = ShellSession.objects.filter(run__job__project__in=projects, recording_stored__gt=0)
    for project, size in shells.order_by().values_list("run__job__project").annotate(Sum("recording_stored")):
        found[project] = found.get(project, 0) + size
    return found


def held_runs() -> frozenset[str]:
    """The runs of which nothing more is stored, because of the limit of their project. At most RELIED_FOR old: each
    batch of log bytes asks."""
    return _held.get("all", _read_held)


def _read_held() -> frozenset[str]:
    stopped = list(LogStorage.objects.filter(level__gte=rules.STOPPED).values_list("project", flat=True))
    if not stopped:
        return frozenset()
    coming = Q(log_complete_at=None) | Q(
        pk__in=ShellSession.objects.filter(recording_state=RecordingState.COMING).values("run")
    )
    runs = Run.objects.filter(coming, job__project__in=stopped, job__deleted_at=None)
    return frozenset(runs.order_by().values_list("pk", flat=True))


def warning(project: Project | int) -> str:
    """What people of the project are to know about its stored logs; empty while there is room."""
    pk = project if isinstance(project, int) else project.pk
    rows = _high(project=pk)
    return rules.text(*rows[0]) if rows else ""


def recent_warning(project: int) -> str:
    """The same, and at most RELIED_FOR late: each submit asks, and mostly no project is near its limit."""
    return warning(project) if project in _high_projects.get("all", _read_high_projects) else ""


def _read_high_projects() -> frozenset[int]:
    return frozenset(LogStorage.objects.filter(level__gt=0).order_by().values_list("project", flat=True))


def held_text(run: Run) -> str:
    """Why the stored log of this run does not go on, with the byte at which it ends; empty if it does."""
    if run.log_complete_at is not None:
        return ""
    own = Job.every.filter(pk=run.job_id).values("project")
    stopped = LogStorage.objects.filter(project__in=own, level__gte=rules.STOPPED)
    row = stopped.select_related("project").first()
    return rules.held_text(row.project.name, row.stored, row.limit_gb, run.log_stored) if row else ""
