"""The page of one job, as frozen values. The number of queries does not depend on the number of replicas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils.translation import gettext

from console.auth import access
from console.presenters import badges
from console.presenters.badges import Badge
from console.presenters.jobs import requested
from console.presenters.jobs.last_lines import LastLines, last_lines
from console.presenters.jobs.replicas import ReplicaLine, replica_lines, tally
from console.presenters.jobs.timeline import LastRestart, Timeline, TimelineFilter, last_restart, timeline
from console.presenters.jobs.utilization import UtilizationPanel, utilization
from console.presenters.sentences import shown
from jobs.models import Job
from jobs.projects import log_storage
from jobs.rules.lifecycle.retry import CANCELLED_TEXT
from jobs.rules.lifecycle.states import TERMINAL, FlagName, JobState
from jobs.rules.spec.advice import Advice
from jobs.scheduling import output_directories

EVERYTHING = TimelineFilter()


@dataclass(frozen=True, slots=True)
class FlagLine:
    word: str
    text: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class JobLive:
    """The live part of a job's page. The first page and every update show the same values."""

    id: int
    name: str
    owner: str
    url: str
    badge: Badge
    terminal: bool
    since: datetime
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    attempt: int
    reason: str
    starts_by: datetime | None
    again: LastRestart | None
    error: str
    flags: tuple[FlagLine, ...]
    log_warning: str
    cancelled: bool
    cancel_by: str
    cancel_at: datetime | None
    kill_at: datetime | None
    may_cancel: bool
    may_delete: bool
    may_clone: bool
    web_access: bool
    replicas: tuple[ReplicaLine, ...]
    tally: tuple[tuple[Badge, int], ...]
    timeline: Timeline
    last_lines: LastLines | None
    use: UtilizationPanel

    @property
    def restarted(self) -> bool:
        """Whether a replica of the job has more than one log."""
        return any(len(replica.runs) > 1 for replica in self.replicas)


@dataclass(frozen=True, slots=True)
class JobPage:
    """The whole page: the parts that never change, and the live part."""

    id: int
    name: str
    resource: str
    labels: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, str], ...]
    pools: tuple[requested.PoolLine, ...]
    advice: tuple[Advice, ...]
    document: str
    live: JobLive


def live(job: Job, user: User, requested_filter: TimelineFilter = EVERYTHING) -> JobLive:
    """Return the live part. A failed job costs three queries more, for the last lines of its log."""
    allowed = access.verbs(user, job)
    shells = "shell" in allowed and _web_access(job) and job.state not in TERMINAL
    replicas = tuple(replica_lines(job, shells))
    terminal = job.state in TERMINAL
    return JobLive(
        id=job.pk,
        name=job.display_name,
        owner=job.owner_name,
        url=reverse("job", args=[job.pk]),
        badge=badges.JOB[job.state],
        terminal=terminal,
        since=_since(job),
        created_at=job.created_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        attempt=job.attempt,
        reason=shown(job.reason),
        starts_by=job.earliest_start_at,
        again=last_restart(job),
        error=shown(error_text(job)),
        flags=tuple(_flag(flag) for flag in job.flags),
        log_warning="" if terminal else log_storage.warning(job.project_id),
        cancelled=job.state == JobState.CANCELLED and job.cancel_requested_at is not None,
        cancel_by=job.cancel_requested_by,
        cancel_at=job.cancel_requested_at,
        kill_at=_kill_at(job),
        may_cancel="cancel" in allowed and not terminal and job.state != JobState.CANCELLING,
        may_delete="delete" in allowed and terminal,
        may_clone="submit" in allowed,
        web_access=_web_access(job),
        replicas=replicas,
        tally=tally(replicas),
        timeline=timeline(job, (line.name for line in replicas), requested_filter),
        last_lines=last_lines(job) if "see_log" in allowed else None,
        use=utilization(job, replicas, requested_filter.use, requested_filter.span, requested_filter.sort),
    )


def page(job: Job, user: User, requested_filter: TimelineFilter = EVERYTHING) -> JobPage:
    spec: Mapping[str, object] = job.spec
    document = {"displayName": job.display_name, "jobSpec": spec}
    if job.labels:
        document["labels"] = job.labels
    return JobPage(
        id=job.pk,
        name=job.display_name,
        resource=f"projects/{job.project.name}/locations/{job.location_name}/customJobs/{job.pk}",
        labels=tuple(sorted(job.labels.items())),
        facts=tuple(requested.facts(job)),
        pools=tuple(requested.pools(job)),
        advice=output_directories.advice_of(job),
        document=json.dumps(document, indent=2, ensure_ascii=False),
        live=live(job, user, requested_filter),
    )


def _flag(flag: Mapping[str, str]) -> FlagLine:
    name = str(flag.get("flag") or flag.get("name") or "")
    since = flag.get("since")
    word = gettext(FlagName(name).value.capitalize()) if name in FlagName.__members__ else name
    return FlagLine(word, shown(flag.get("text", "")), datetime.fromisoformat(since) if since else None)


def _since(job: Job) -> datetime:
    at = job.transitions.filter(subject="job").order_by("-id").values_list("at", flat=True).first()
    return at or job.created_at


def error_text(job: Job) -> str:
    """Return the error message to show, or an empty text.

    Vertex's one-word message of a cancelled job repeats the state. A job that will run again has no error; its flag
    says why it runs again.
    """
    said = job.state == JobState.CANCELLED and job.error_message == CANCELLED_TEXT
    return "" if said or job.outcome == JobState.QUEUED else job.error_message


def _kill_at(job: Job) -> datetime | None:
    """Return when the grace period of a cancelled job ends at the latest, by the control plane's clock."""
    if job.state != JobState.CANCELLING or job.cancel_requested_at is None:
        return None
    return job.cancel_requested_at + timedelta(seconds=settings.TRAINYARD.grace_s)


def _web_access(job: Job) -> bool:
    return bool(job.spec.get("enableWebAccess"))
