"""The page that replays the recording of a shell, and the recording itself."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from console.auth import access
from console.auth.person import person
from console.presenters.shells import recordings
from jobs.models import Job

SPEEDS = (1, 2, 4, 8, 16)


@require_safe
@login_required
def replay(request: HttpRequest, job_id: int, key: str) -> HttpResponse:
    job = _job(request, job_id)
    shown = recordings.page(recordings.recording_or_404(job, key))
    context = {"job": job, "recording": shown, "speeds": SPEEDS}
    response = render(request, "shells/replay.html", context)
    response.inline_styles = True  # type: ignore[attr-defined]  # xterm.js writes a style element of its own
    return response


@require_safe
@login_required
def recording(request: HttpRequest, job_id: int, key: str) -> StreamingHttpResponse:
    session = recordings.recording_or_404(_job(request, job_id), key)
    return recordings.download(session, person(request).get_username())


def _job(request: HttpRequest, job_id: int) -> Job:
    return access.get_or_404(request.user, "replay_shell", Job.objects.select_related("project"), pk=job_id)
