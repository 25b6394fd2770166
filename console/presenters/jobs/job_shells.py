"""The shells of a job, as frozen values: those that are open, those that ended, and where one can be opened."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.urls import reverse
from django.utils.http import urlencode

from console.auth import access
from console.presenters.jobs.replicas import ReplicaLine, replica_lines
from jobs.models import Job, ShellSession
from jobs.rules.lifecycle.states import TERMINAL

# Of those that ended, the newest.
ENDED = 50


@dataclass(frozen=True, slots=True)
class ShellLine:
    """`url`: where a person goes on with it, while it is open."""

    user: str
    replica: str
    host: str
    opened_at: datetime
    closed_at: datetime | None
    reason: str
    url: str


@dataclass(frozen=True, slots=True)
class JobShells:
    """`replicas`: those in which a shell can be opened now. `web_access`: whether the job was submitted with it."""

    web_access: bool
    may_open: bool
    terminal: bool
    replicas: tuple[ReplicaLine, ...]
    open: tuple[ShellLine, ...]
    ended: tuple[ShellLine, ...]


def may_open(job: Job, user: User) -> bool:
    """Whether this person can open a shell in replicas of the job that run."""
    return access.can(user, "shell", job) and web_access(job) and job.state not in TERMINAL


def web_access(job: Job) -> bool:
    return bool(job.spec.get("enableWebAccess"))


def shells(job: Job, user: User, replica: str = "") -> JobShells:
    """Return the shells of all replicas, or of one."""
    rows = ShellSession.objects.filter(run__job=job).select_related("run__replica", "run__host")
    rows = rows.defer("run__order", "run__log_proof", "run__host__checklist", "run__host__facts")
    if replica:
        rows = rows.filter(run__replica__name=replica)
    lines = replica_lines(job, may_open(job, user), replica)
    return JobShells(
        web_access=web_access(job),
        may_open=access.can(user, "shell", job),
        terminal=job.state in TERMINAL,
        replicas=tuple(line for line in lines if line.shell_url),
        open=tuple(_lines(job, rows.filter(closed_at=None).order_by("-opened_at"))),
        ended=tuple(_lines(job, rows.exclude(closed_at=None).order_by("-opened_at")[:ENDED])),
    )


def _lines(job: Job, rows: Iterable[ShellSession]) -> Iterable[ShellLine]:
    for row in rows:
        key = f"?{urlencode({'shell': row.key})}" if row.key else ""
        yield ShellLine(
            user=row.user_name,
            replica=row.run.replica.name,
            host=row.run.host.name,
            opened_at=row.opened_at,
            closed_at=row.closed_at,
            reason=row.close_reason,
            url=f"{reverse('shell', args=[job.pk, row.run_id])}{key}"
            if row.closed_at is None and key
            else "",
        )
