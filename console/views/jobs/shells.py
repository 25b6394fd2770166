"""The page of a shell. Its bytes come over a socket (console/consumers), which checks permissions itself."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from console.auth import access
from jobs import shells
from jobs.models import Job


@require_safe
@login_required
def shell(request: HttpRequest, job_id: int, run_id: str) -> HttpResponse:
    job = access.get_or_404(request.user, "shell", Job.objects.all(), pk=job_id)
    run = get_object_or_404(job.runs.select_related("host", "replica"), pk=run_id)
    context = {
        "job": job,
        "run": run,
        "replica": run.replica.name,
        "host": run.host.name,
        "run_id": run.pk,
        "keep_minutes": settings.TRAINYARD.shell_keep_s // 60,
        "key": request.GET.get("shell", ""),
        "open_shells": shells.kept_on(run),
    }
    response = render(request, "shells/shell.html", context)
    response.inline_styles = True  # type: ignore[attr-defined]  # xterm.js writes a style element of its own
    return response
