"""The live parts of a job's page: what each shows, and its stamp, which changes whenever the part would change.

The page, the answer to htmx and the page's socket render a part by the same template with the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, Max
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone

from console.auth import access
from console.presenters import preparations
from console.presenters.jobs import job_head, timeline
from console.presenters.jobs.cells import cells
from console.presenters.jobs.job_filters import cursor_number
from console.presenters.jobs.job_query import JobQuery
from console.presenters.jobs.replicas import replica_lines
from console.presenters.metrics.metrics_page import View, newest_points
from console.presenters.metrics.reported_metrics import SILENT, reported
from console.presenters.metrics.strip import strip
from console.presenters.metrics.utilization import utilization
from console.presenters.shells import job_shells
from console.presenters.shells.job_shells import may_open, shells
from console.presenters.stamps import digest
from jobs.metrics import curves
from jobs.models import Job, Run, Transition
from jobs.preparations import of_jobs
from jobs.rules.lifecycle.states import TERMINAL, JobState

Query = Mapping[str, str]
Context = dict[str, Any]
SAMPLES_EVERY_S = 10
# A push of the cells of a thousand replicas has some hundred kilobytes before it is packed.
MANY_RUNS, MANY_EVERY_S = 200, 60
_EXPECTED = ("expected_start__usual_at", "expected_start__limit_at")


@dataclass(frozen=True, slots=True)
class JobPart:
    """One part: its template, a function that returns the values of the template, and its stamp."""

    template: str
    context: Callable[[Job, User, Query], Context]
    stamp: Callable[[int], str]


def _head(job: Job, user: User, query: Query) -> Context:
    return {"head": job_head.head(job, user, lines=False)}


def _overview_head(job: Job, user: User, query: Query) -> Context:
    """The overview also shows the last lines of a failed job. On other tabs they would push away what is there."""
    return {"head": job_head.head(job, user, lines=True)}


def _replicas(job: Job, user: User, query: Query) -> Context:
    lines = tuple(replica_lines(job, may_open(job, user)))
    shown = cells(lines, JobQuery.from_query(query))
    return {
        "cells": shown,
        "lines": lines,
        "terminal": job.state in TERMINAL,
        "metrics_url": reverse("job-metrics", args=[job.pk]),
        "stacks_url": _stacks_url(job, user),
    }


def _strip(job: Job, user: User, query: Query) -> Context:
    return {"strip": strip(job, timezone.now()), "metrics_url": reverse("job-metrics", args=[job.pk])}


def _preparations(job: Job, user: User, query: Query) -> Context:
    return {"preparations": preparations.panel(job, access.can(user, "see_log", job), timezone.now())}


def _story(job: Job, user: User, query: Query) -> Context:
    asked = JobQuery.from_query(query)
    return {"job_id": job.pk, "query": asked, "story": timeline.newest(job, asked)}


def _events(job: Job, user: User, query: Query) -> Context:
    asked, before = JobQuery.from_query(query), cursor_number(query.get("before", ""))
    found = timeline.events(job, asked, before)
    return {"job_id": job.pk, "query": asked, "choices": timeline.choices(job), "events": found}


def _metrics(job: Job, user: User, query: Query) -> Context:
    lines = tuple(replica_lines(job, shells=False))
    charts = View.of(query, [line.name for line in lines])
    asked = replace(JobQuery.from_query(query), also=charts.beside_span)
    use = utilization(lines, asked)
    return {"job_id": job.pk, "query": asked, "use": use, "lines": lines}


def _reports(job: Job, user: User, query: Query) -> Context:
    return {"reported": reported(job), "stacks_url": _stacks_url(job, user)}


def _stacks_url(job: Job, user: User) -> str:
    """Where the stacks of the job are taken; empty for whoever may not, and while it does not run."""
    is_there = job.state == JobState.RUNNING and may_open(job, user)
    return reverse("job-stacks", args=[job.pk]) if is_there else ""


def _points(job: Job, user: User, query: Query) -> Context:
    return {"points": newest_points(job, query, timezone.now())}


def _shells(job: Job, user: User, query: Query) -> Context:
    return {"shells": shells(job, user, JobQuery.from_query(query).replica)}


def _state_stamp(job_id: int) -> str:
    """What the job itself is, when it is expected to start, and the last line that a host reported of a run: a banner
    shows lines of a log. A study, a pipeline or a model that is deleted is not linked any more, and a model comes later
    than the end of its job."""
    rows = Job.objects.filter(pk=job_id).order_by().annotate(newest=_newest(job_id))
    others = ("trial_row__tuning_job__deleted_at", "training_pipeline__deleted_at")
    closed = Max("runs__closed_at")
    models = [Max(f"model_versions__{name}") for name in ("pk", "deleted_at", "model__deleted_at")]
    return digest(
        rows.values_list("version", "updated_at", "newest", closed, *models, *others, *_EXPECTED).first()
    )


def _runs_stamp(job_id: int) -> str:
    runs = Count("runs"), Max("runs__started_at"), Max("runs__ended_at"), Max("runs__closed_at")
    quiet = Max("runs__host__status_since")
    rows = Job.objects.filter(pk=job_id).order_by().annotate(newest=_newest(job_id))
    return digest(rows.values_list("version", "updated_at", "newest", *runs, quiet).first())


def _samples_stamp(job_id: int) -> str:
    """The samples of many replicas arrive all the time. Show them together, and those of very many less often."""
    found = Run.objects.filter(job_id=job_id).aggregate(at=Max("sampled_at"), runs=Count("pk"))
    every_s = SAMPLES_EVERY_S if found["runs"] <= MANY_RUNS else MANY_EVERY_S
    return digest([_runs_stamp(job_id), int(found["at"].timestamp()) // every_s if found["at"] else None])


def _reports_stamp(job_id: int) -> str:
    """A job that falls silent changes nothing but the time."""
    found = curves.stamp(job_id)
    newest = found[-1]
    row = Job.objects.filter(pk=job_id).values_list("state", "started_at").first()
    since = newest or (row and row[1])
    return digest([found, row, since is not None and timezone.now() - since >= SILENT])


def _preparations_stamp(job_id: int) -> str:
    return digest(of_jobs.stamp(job_id))


def _events_stamp(job_id: int) -> str:
    """Events are only ever added."""
    return str(Transition.objects.filter(job_id=job_id).aggregate(Max("pk"))["pk__max"])


def _shells_stamp(job_id: int) -> str:
    return digest(job_shells.stamp(job_id))


def _newest(job_id: int) -> Any:
    return Transition.objects.filter(job_id=job_id).order_by("-id").values("pk")[:1]


PARTS: Mapping[str, JobPart] = {
    "job-head": JobPart("jobs/_head.html", _head, _state_stamp),
    "job-overview-head": JobPart("jobs/_head.html", _overview_head, _state_stamp),
    "job-replicas": JobPart("jobs/_cells.html", _replicas, _samples_stamp),
    "job-preparations": JobPart("jobs/_preparations.html", _preparations, _preparations_stamp),
    "job-strip": JobPart("jobs/_strip.html", _strip, _samples_stamp),
    "job-story": JobPart("jobs/_story.html", _story, _events_stamp),
    "job-events": JobPart("jobs/_events.html", _events, _events_stamp),
    "job-metrics": JobPart("jobs/_metrics.html", _metrics, _samples_stamp),
    "job-points": JobPart("jobs/_points.html", _points, _samples_stamp),
    "job-reports": JobPart("jobs/_reported.html", _reports, _reports_stamp),
    "job-shells": JobPart("shells/_list.html", _shells, _shells_stamp),
}
OVERVIEW = ("job-overview-head", "job-preparations", "job-strip", "job-replicas", "job-story")
# Those that there were before version 0.4.
OLD_OVERVIEW = ("job-overview-head", "job-replicas", "job-story")


def context(names: tuple[str, ...], job: Job, user: User, query: Query) -> Context:
    """The values of several parts of one page."""
    found: Context = {}
    for name in names:
        found |= PARTS[name].context(job, user, query)
    return found


def part_stamp(name: str, job_id: int) -> str:
    return PARTS[name].stamp(job_id)


def part_live(name: str, user: User, job_id: int, query: Query) -> str:
    """Render one part. Returns an empty text where the job does not exist, or not for this person."""
    job = _visible(user, job_id)
    return render_to_string(PARTS[name].template, PARTS[name].context(job, user, query)) if job else ""


def job_stamp(job_id: int) -> str:
    return digest([PARTS[name].stamp(job_id) for name in OLD_OVERVIEW])


def job_live(user: User, job_id: int, query: Query) -> str:
    """Render all parts of the overview at once, as the socket of before version 0.4 sends them."""
    job = _visible(user, job_id)
    return render_to_string("jobs/_live.html", context(OLD_OVERVIEW, job, user, query)) if job else ""


def _visible(user: User, job_id: int) -> Job | None:
    return access.visible(user, Job.objects.select_related("project").filter(pk=job_id)).first()
