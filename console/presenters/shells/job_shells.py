"""The shells of a job: who has or had one where, and on which replicas a new one can be opened. Constant queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from django.contrib.auth.models import User
from django.db.models import Count, Max, Min, QuerySet, Sum
from django.urls import reverse
from django.utils import timezone

from agents.infra.sentences import shown
from console.auth import access
from console.presenters.shells import recordings
from jobs import shells as shell_records
from jobs.models import Job, Run, ShellSession
from jobs.rules.lifecycle.states import TERMINAL, RunPhase

# How many shells that are over a page shows.
ENDED_SHOWN = 30


class ShellState(StrEnum):
    OPEN = "OPEN"
    CLOSING = "CLOSING"
    CLOSED = "CLOSED"


@dataclass(frozen=True, slots=True)
class ShellRow:
    """One shell. Without `key` it is not kept: it ends with the connection of the script that opened it."""

    id: int
    key: str
    state: ShellState
    replica: str
    run: str
    host: str
    owner: str
    opened_at: datetime
    closed_at: datetime | None
    reason: str
    attended: bool
    shared: bool
    url: str
    watch_url: str
    files_url: str
    recording: str
    """RecordingState, or empty where nothing is recorded."""
    replay_url: str


@dataclass(frozen=True, slots=True)
class JobShells:
    job_id: int
    open: tuple[ShellRow, ...]
    ended: tuple[ShellRow, ...]
    more: int
    """How many are over besides those that are shown."""
    replicas: tuple[str, ...]
    """Where a new shell can be opened."""
    replica: str
    """The one that was chosen, or empty."""
    why_none: str
    may_open: bool


def may_open(job: Job, user: User) -> bool:
    """Whether this person can open a shell in replicas of the job that run."""
    return access.can(user, "shell", job) and not _why_none(job)


def shells(job: Job, user: User, replica: str = "") -> JobShells:
    """The shells of all replicas, or of one."""
    allowed, now = access.verbs(user, job), timezone.now()
    rows = shell_records.of_job(job)
    if replica:
        rows = rows.filter(run__replica__name=replica)
    found = [row_of(session, allowed, now) for session in rows.filter(closed_at=None)]
    ended_rows = rows.filter(closed_at__isnull=False)
    ended = [row_of(session, allowed, now) for session in ended_rows[:ENDED_SHOWN]]
    opens, why_none = "shell" in allowed, _why_none(job)
    names = [name for _run, name in open_names(job)] if opens and not why_none else []
    return JobShells(
        job_id=job.pk,
        open=tuple(found),
        ended=tuple(ended),
        more=ended_rows.count() - len(ended) if len(ended) == ENDED_SHOWN else 0,
        replicas=tuple(names),
        replica=replica,
        why_none=why_none,
        may_open=opens,
    )


def open_shells(job: Job, user: User) -> list[ShellRow]:
    """The shells of all replicas that are not over."""
    allowed, now = access.verbs(user, job), timezone.now()
    return [row_of(session, allowed, now) for session in shell_records.of_job(job).filter(closed_at=None)]


def open_runs(job: Job) -> Sequence[Run]:
    """The runs on which a shell can be opened now, in the order of their replicas."""
    return list(_open(job).select_related("replica", "host").only("replica__name", "host__name"))


def open_names(job: Job) -> list[tuple[str, str]]:
    """Their ids, and the names of their replicas."""
    return list(_open(job).values_list("pk", "replica__name"))


def _open(job: Job) -> QuerySet[Run]:
    rows = Run.objects.filter(job=job, attempt=job.attempt, held=False, phase=RunPhase.RUNNING)
    return rows.filter(stop_wanted_at=None).order_by("replica__pool", "replica__index")


def row_of(session: ShellSession, allowed: Iterable[str], now: datetime) -> ShellRow:
    over = session.closed_at is not None
    state = ShellState.CLOSED if over else ShellState.CLOSING if session.close_wanted_at else ShellState.OPEN
    kept = (session.key or "") if session.keep_s else ""
    address = reverse("shell", args=[session.run.job_id, session.run_id]) + f"?shell={kept}"
    types = bool(kept) and state == ShellState.OPEN and "shell" in allowed
    watches = types or (
        bool(kept) and state == ShellState.OPEN and session.shared and "watch_shell" in allowed
    )
    seen_at = session.seen_at or session.opened_at
    return ShellRow(
        id=session.pk,
        key=kept if types or watches else "",
        state=state,
        replica=session.run.replica.name,
        run=session.run_id,
        host=session.run.host.name,
        owner=session.user_name,
        opened_at=session.opened_at,
        closed_at=session.closed_at,
        reason=shown(session.close_reason),
        attended=not over and now - seen_at < 2 * shell_records.HEARTBEAT,
        shared=session.shared,
        url=address if types else "",
        watch_url=address + "&watch" if watches else "",
        recording=session.recording_state,
        replay_url=recordings.url_of(session) if "replay_shell" in allowed else "",
        files_url=reverse("job-files", args=[session.run.job_id, session.run.replica.name]) if types else "",
    )


def _why_none(job: Job) -> str:
    if not job.spec.get("enableWebAccess"):
        return "no web access"
    return "over" if job.state in TERMINAL else ""


def stamp(job_id: int) -> list[object]:
    """What changes with the list."""
    rows = ShellSession.objects.filter(run__job=job_id)
    ended = rows.filter(closed_at__isnull=False).aggregate(Count("pk"), Max("closed_at"))
    late = timezone.now() - 2 * shell_records.HEARTBEAT
    kept = rows.aggregate(Sum("recording_stored"), Max("recording_state"), Min("recording_state"))
    names = ("pk", "close_wanted_at", "shared", "seen_at")
    found = rows.filter(closed_at=None).order_by("pk").values_list(*names)
    states = [(*row[:3], bool(row[3] and row[3] > late)) for row in found]
    runs = Run.objects.filter(job=job_id).order_by("pk").values_list("pk", "phase", "stop_wanted_at")
    job = Job.objects.filter(pk=job_id).values_list("state", "attempt").first()
    return [states, ended, kept, list(runs), job]
