"""The head of a job's page, as frozen values. It stands above every tab, and is live on each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User

from agents.infra.sentences import shown
from console.auth import access
from console.presenters import badges
from console.presenters.badges import Badge
from console.presenters.jobs.last_lines import LastLines, last_lines
from console.presenters.jobs.pipeline_links import NamedLink, models_of, pipeline_of
from console.presenters.jobs.timeline import LastRestart, last_restart
from console.presenters.jobs.trial_links import TrialLink, trial_links
from console.presenters.queue.expected_start import Expected, expected_start
from jobs.models import ExpectedStart, Job, JobLabel
from jobs.projects import log_storage
from jobs.rules.lifecycle.retry import CANCELLED_TEXT
from jobs.rules.lifecycle.states import TERMINAL, JobState
from jobs.rules.tuning.study import LABEL


@dataclass(frozen=True, slots=True)
class FlagLine:
    word: str
    text: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class JobHead:
    """The first page and every update show the same values. `replicas`: how many the job has."""

    id: int
    name: str
    owner: str
    labels: tuple[tuple[str, str], ...]
    trial: TrialLink | None
    pipeline: NamedLink | None
    models: tuple[NamedLink, ...]
    badge: Badge
    terminal: bool
    since: datetime
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    attempt: int
    replicas: int
    reason: str
    starts_by: datetime | None
    expected: Expected | None
    rests_until: datetime | None
    again: LastRestart | None
    error: str
    last_lines: LastLines | None
    flags: tuple[FlagLine, ...]
    log_warning: str
    cancelled: bool
    cancel_by: str
    cancel_at: datetime | None
    kill_at: datetime | None
    may_cancel: bool
    may_delete: bool
    may_clone: bool


def head(job: Job, user: User, lines: bool) -> JobHead:
    """Return the head. With `lines`, that of a failed job has the last lines of its log, which costs three queries."""
    allowed = access.verbs(user, job)
    terminal = job.state in TERMINAL
    labels = list(JobLabel.objects.filter(job=job).order_by("key").values_list("key", "value"))
    trial = trial_links((job.pk, key) for key, _value in labels).get(job.pk)
    return JobHead(
        id=job.pk,
        name=job.display_name,
        owner=job.owner_name,
        labels=tuple((key, value) for key, value in labels if trial is None or key != LABEL),
        trial=trial,
        pipeline=pipeline_of(job.project.name, job=job.pk),
        models=models_of(job.project.name, job=job.pk),
        badge=badges.JOB[job.state],
        terminal=terminal,
        since=_since(job),
        created_at=job.created_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        attempt=job.attempt,
        replicas=job.replica_count,
        reason=shown(job.reason),
        starts_by=job.earliest_start_at,
        expected=_expected(job),
        rests_until=job.rests_until if job.state == JobState.QUEUED else None,
        again=last_restart(job),
        error=shown(error_text(job)),
        last_lines=last_lines(job) if lines and "see_log" in allowed else None,
        flags=tuple(_flag(flag) for flag in job.flags),
        log_warning="" if terminal else shown(log_storage.warning(job.project_id)),
        cancelled=job.state == JobState.CANCELLED and job.cancel_requested_at is not None,
        cancel_by=job.cancel_requested_by,
        cancel_at=job.cancel_requested_at,
        kill_at=_kill_at(job),
        may_cancel="cancel" in allowed and not terminal and job.state != JobState.CANCELLING,
        may_delete="delete" in allowed and terminal,
        may_clone="submit" in allowed,
    )


def _expected(job: Job) -> Expected | None:
    if job.state != JobState.QUEUED:
        return None
    return expected_start(job, ExpectedStart.objects.filter(job=job).first())


def error_text(job: Job) -> str:
    """Return the error message to show, or an empty text.

    Vertex's one-word message of a cancelled job repeats the state. A job that will run again has no error; its flag
    says why it runs again.
    """
    said = job.state == JobState.CANCELLED and job.error_message == CANCELLED_TEXT
    return "" if said or job.outcome == JobState.QUEUED else job.error_message


def _flag(flag: Mapping[str, str]) -> FlagLine:
    name = str(flag.get("flag") or flag.get("name") or "")
    since = flag.get("since")
    return FlagLine(
        badges.flag_word(name), shown(flag.get("text", "")), datetime.fromisoformat(since) if since else None
    )


def _since(job: Job) -> datetime:
    at = job.transitions.filter(subject="job").order_by("-id").values_list("at", flat=True).first()
    return at or job.created_at


def _kill_at(job: Job) -> datetime | None:
    """Return when the grace period of a cancelled job ends at the latest, by the control plane's clock."""
    if job.state != JobState.CANCELLING or job.cancel_requested_at is None:
        return None
    return job.cancel_requested_at + timedelta(seconds=settings.TRAINYARD.grace_s)
