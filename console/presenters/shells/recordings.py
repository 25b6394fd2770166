"""The recording of a shell: what the page of its replay says about it, and the recording as a download."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.http import Http404, StreamingHttpResponse
from django.urls import reverse
from django.utils import timezone

from jobs import shells
from jobs.models import Job, ShellSession
from jobs.recordings import policy, store


@dataclass(frozen=True, slots=True)
class RecordingPage:
    replica: str
    host: str
    owner: str
    opened_at: datetime
    closed_at: datetime | None
    state: str
    size: int
    until: datetime
    data_url: str


def url_of(session: ShellSession) -> str:
    """The page that replays the shell; empty if there is nothing to replay."""
    return (
        reverse("replay-shell", args=[session.run.job_id, session.recording])
        if session.recording_stored
        else ""
    )


def recording_or_404(job: Job, name: str) -> ShellSession:
    session = of_job(job).filter(recording=name).first()
    if session is None or not session.recording_stored:
        raise Http404
    return session


def of_job(job: Job) -> QuerySet[ShellSession]:
    return shells.of_job(job).select_related("run__job__project").exclude(recording="")


def page(session: ShellSession) -> RecordingPage:
    run = session.run
    return RecordingPage(
        replica=run.replica.name,
        host=run.host.name,
        owner=session.user_name,
        opened_at=session.opened_at,
        closed_at=session.closed_at,
        state=session.recording_state,
        size=session.recording_stored,
        until=(session.closed_at or timezone.now()) + timedelta(days=policy.kept_days()),
        data_url=reverse("shell-recording", args=[run.job_id, session.recording]),
    )


def download(session: ShellSession, actor: str) -> StreamingHttpResponse:
    """The recording, to be kept and never to be shown as a page: a program of a job wrote it. The audit tells it."""
    store.record_replay(session, actor, timezone.now())
    response = StreamingHttpResponse(store.stream(session), content_type="application/x-asciicast")
    name = f"job-{session.run.job_id}-{session.run.replica.name}-{session.recording[:8]}.cast"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["X-Content-Type-Options"] = "nosniff"
    response["Cache-Control"] = "private, no-store"
    return response
