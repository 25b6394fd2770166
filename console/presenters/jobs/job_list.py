"""The list of jobs, filtered and paged in SQL. It does not load the specs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.urls import reverse

from console.auth import access
from console.presenters import badges
from console.presenters.badges import Badge
from console.presenters.jobs.job_page import error_text
from jobs.models import Job, Project
from jobs.rules.lifecycle.states import TERMINAL, JobState

SIZE = 50
ACTIVE = frozenset(JobState) - TERMINAL
COLUMNS = (
    "id",
    "display_name",
    "owner_name",
    "state",
    "reason",
    "flags",
    "error_message",
    "outcome",
    "replica_count",
    "labels",
    "project__name",
    "attempt",
    "created_at",
    "started_at",
    "ended_at",
)


def cursor_number(text: str) -> int | None:
    """Read an id or a cursor from an address. Return None for a value that the database could not hold."""
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None
    return value if value is not None and value < 2**63 else None


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters in the address of the page. An unknown value counts as no filter."""

    state: str = ""
    text: str = ""
    owner: str = ""
    project: str = ""
    before: int | None = None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filters:
        state = query.get("state", "")
        before = query.get("before", "")
        return cls(
            state=state if state in ("active", *JobState) else "",
            text=query.get("text", "").strip()[:128],
            owner=query.get("owner", "").strip()[:150],
            project=query.get("project", "").strip()[:63],
            before=cursor_number(before),
        )

    @property
    def any(self) -> bool:
        return bool(self.state or self.text or self.owner or self.project)

    def query(self, before: int | None = None) -> str:
        asked = {"state": self.state, "text": self.text, "owner": self.owner, "project": self.project}
        return urlencode({name: value for name, value in {**asked, "before": before}.items() if value})


@dataclass(frozen=True, slots=True)
class JobRow:
    id: int
    url: str
    name: str
    badge: Badge
    note: str
    owner: str
    project: str
    replicas: int
    attempt: int
    labels: tuple[tuple[str, str], ...]
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class JobList:
    """One page of the list. `older` and `newest` are addresses of other pages, or empty."""

    rows: tuple[JobRow, ...]
    filters: Filters
    projects: tuple[str, ...]
    live_query: str
    older: str
    newest: str
    shows_filters: bool = True


def job_list(user: User, query: Mapping[str, str]) -> JobList:
    filters = Filters.of(query)
    rows = list(_found(user, filters)[: SIZE + 1])
    projects = access.visible(user, Project.objects.order_by("name"))
    here = reverse("jobs")
    more = len(rows) > SIZE
    return JobList(
        rows=tuple(_row(job) for job in rows[:SIZE]),
        filters=filters,
        projects=tuple(projects.values_list("name", flat=True)),
        live_query=filters.query(filters.before),
        older=f"{here}?{filters.query(rows[SIZE - 1].pk)}" if more else "",
        newest=f"{here}?{filters.query()}" if filters.before else "",
    )


def stamp(user: User, query: Mapping[str, str]) -> list[object]:
    """Return what changes whenever the page would change."""
    rows = _found(user, Filters.of(query)).values_list(*COLUMNS)
    projects = access.visible(user, Project.objects.order_by("name"))
    return [list(rows[: SIZE + 1]), list(projects.values_list("name", flat=True))]


def _found(user: User, filters: Filters) -> QuerySet[Job]:
    rows = access.visible(user, Job.objects.select_related("project").only(*COLUMNS)).order_by("-id")
    if filters.project:
        rows = rows.filter(project__name=filters.project)
    if filters.state:
        rows = rows.filter(state__in=ACTIVE if filters.state == "active" else [filters.state])
    if filters.owner:
        rows = rows.filter(owner_name=filters.owner)
    if filters.text:
        match = Q(display_name__icontains=filters.text)
        if cursor_number(filters.text) is not None:
            match |= Q(pk=cursor_number(filters.text))
        rows = rows.filter(match)
    rows = rows.filter(id__lt=filters.before) if filters.before else rows
    # A text is looked for in the index `job_names`; only the rows that are shown are read.
    return rows.filter(pk__in=list(rows.values_list("pk", flat=True)[: SIZE + 1])) if filters.text else rows


def _row(job: Job) -> JobRow:
    # The reason of a wait does not matter once the job is over.
    reason = "" if job.state in TERMINAL else job.reason
    flags = [str(flag.get("text", "")) for flag in job.flags]
    return JobRow(
        id=job.pk,
        url=reverse("job", args=[job.pk]),
        name=job.display_name,
        badge=badges.JOB[job.state],
        note=" ".join(filter(None, [error_text(job), reason, *flags])),
        owner=job.owner_name,
        project=job.project.name,
        replicas=job.replica_count,
        attempt=job.attempt,
        labels=tuple(sorted(job.labels.items()))[:4],
        created_at=job.created_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
    )
