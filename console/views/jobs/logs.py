"""The tabs of a job's page with the log of one replica, and with the logs of all."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from console.auth import access
from console.auth.person import person
from console.presenters.jobs import job_page, job_parts
from console.presenters.jobs.logs_together import began_at, logs_together
from console.presenters.jobs.replicas import replica_lines
from console.presenters.shells.job_shells import may_open
from jobs.models import Job


@require_safe
@login_required
def log(request: HttpRequest, job_id: int, replica: str) -> HttpResponse:
    job = _job(request, job_id)
    row = get_object_or_404(job.replicas, name=replica)
    asked = request.GET.get("run", "")
    run = asked if asked and row.runs.filter(pk=asked).exists() else ""
    [line] = replica_lines(job, may_open(job, person(request)), replica)
    context = {**_context(request, job, replica), "replica": replica, "line": line, "run": run}
    return render(request, "jobs/log.html", context)


@require_safe
@login_required
def merged_log(request: HttpRequest, job_id: int) -> HttpResponse:
    job = _job(request, job_id)
    asked = [name for text in request.GET.getlist("replicas") for name in text.split(",") if name]
    if "to" in request.GET:
        # The form that chooses replicas: the address that others are given says no more than which.
        chosen = f"?replicas={quote(','.join(asked), safe=',')}" if asked else ""
        return redirect(f"{reverse('merged-log', args=[job_id])}{chosen}")
    together = logs_together(job, asked)
    shown = {"together": together, "replicas": ",".join(together.names), "began": began_at(job)}
    # Those that the person chose are searched and downloaded alone; of what we have chosen, all logs are.
    shown["chosen"] = shown["replicas"] if asked else ""
    context = {**_context(request, job), **shown, "log_url": reverse("log", args=[job_id, "NAME"])}
    if asked and not together.left_out:
        context["ticked"] = together.names
    return render(request, "jobs/merged_log.html", context)


def _job(request: HttpRequest, job_id: int) -> Job:
    return access.get_or_404(request.user, "see_log", Job.objects.select_related("project"), pk=job_id)


def _context(request: HttpRequest, job: Job, replica: str = "") -> dict[str, Any]:
    context = job_parts.context(("job-head",), job, person(request), {})
    page = job_page.page(job, person(request), job_page.LOGS, replica)
    return {**context, "page": page, "masked": job_page.masked_note(job, replica)}
