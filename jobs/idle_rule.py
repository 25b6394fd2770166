"""The idle rule of a project: its admins set it, and the sweep cancels idle jobs where the rule says so."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from agents.infra.clock import Clock
from agents.infra.refusals import Refused
from agents.infra.sql import SelectStatement
from agents.infra.texts import said
from jobs import services
from jobs.lifecycle import snapshot
from jobs.lifecycle.advance import advance
from jobs.models import Job, Project
from jobs.projects import audit
from jobs.rules.lifecycle.states import FlagName, JobState

MIN_MINUTES, MAX_MINUTES = 1, 100_000


def _running_under_a_rule() -> QuerySet[Job, tuple[int]]:
    rules = Project.objects.filter(idle_stops=True, idle_minutes__isnull=False)
    jobs = Job.objects.filter(project__in=rules, state=JobState.RUNNING, cancel_requested_at=None, outcome="")
    return jobs.order_by().values_list("pk")


_under_a_rule = SelectStatement(_running_under_a_rule)


def set_rule(project: Project, minutes: int | None, stops: bool, actor: str, now: datetime) -> None:
    """Change the rule. `minutes` None turns it off. Running jobs are decided about again at once."""
    if minutes is not None and not MIN_MINUTES <= minutes <= MAX_MINUTES:
        raise Refused(
            "idle_minutes",
            said(
                "is a number of minutes from {least} to {most}, or empty.",
                least=MIN_MINUTES,
                most=MAX_MINUTES,
            ),
        )
    with transaction.atomic():
        row = Project.objects.select_for_update(no_key=True).get(pk=project.pk)
        before, after = _terms(row.idle_minutes, row.idle_stops), _terms(minutes, stops)
        if before == after:
            return
        Project.objects.filter(pk=row.pk).update(
            idle_minutes=minutes, idle_stops=stops and minutes is not None
        )
        audit.record(actor, "project.idle_rule", "project", row.name, before, after, now, row)
        running = Job.every.filter(project=row, state=JobState.RUNNING)
        snapshot.hold_jobs(ids=(ids := list(running.values_list("pk", flat=True))))
        Job.every.filter(pk__in=ids).update(due_at=now)


def _terms(minutes: int | None, stops: bool) -> dict[str, object] | None:
    return None if minutes is None else {"minutes": minutes, "stops": stops}


def cancel_idle_jobs(now: datetime) -> None:
    """Cancel the jobs that have been idle for long enough, in the projects that chose that."""
    clock = Clock(now)
    # Nearly always there is none, and compiling the query would cost more than the whole sweep.
    if not (ids := _under_a_rule.column()):
        return
    for job in Job.objects.filter(pk__in=ids).select_related("project"):
        if _idle_text(job):
            advance([job.pk], clock)  # it may use its GPUs again since the flag was written
            job.refresh_from_db()
            text = _idle_text(job)
            if text and job.state == JobState.RUNNING:
                name = job.project.name
                why = said(
                    "The job was stopped by the idle rule of project {name}. {why}", name=name, why=text
                )
                services.cancel(job, f"idle rule of project {name}", clock.now(), why)


def _idle_text(job: Job) -> str:
    return next((flag["text"] for flag in job.flags if flag["flag"] == FlagName.IDLE), "")
