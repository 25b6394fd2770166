"""The pages with the log of one replica, and with the logs of all."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from console.auth import access
from console.auth.person import person
from console.presenters.jobs import job_page as presenter
from jobs.models import Job


@require_safe
@login_required
def log(request: HttpRequest, job_id: int, replica: str) -> HttpResponse:
    job = access.get_or_404(request.user, "see_log", Job.objects.select_related("project"), pk=job_id)
    row = get_object_or_404(job.replicas, name=replica)
    asked = request.GET.get("run", "")
    run = asked if asked and row.runs.filter(pk=asked).exists() else ""
    live = presenter.live(job, person(request))
    line = next(line for line in live.replicas if line.name == replica)
    context = {"job": live, "job_id": job_id, "replica": replica, "line": line, "run": run}
    return render(request, "jobs/log.html", context)


@require_safe
@login_required
def merged_log(request: HttpRequest, job_id: int) -> HttpResponse:
    job = access.get_or_404(request.user, "see_log", Job.objects.select_related("project"), pk=job_id)
    live = presenter.live(job, person(request))
    context = {"job": live, "job_id": job_id, "log_url": reverse("log", args=[job_id, "NAME"])}
    return render(request, "jobs/merged_log.html", context)
