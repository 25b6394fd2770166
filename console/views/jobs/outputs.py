"""The Files tab of a job: what it wrote below its output directories. Whoever may read its logs may read its files."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST, require_safe

from console.auth import access
from console.auth.access import Verb
from console.auth.person import person
from console.presenters.jobs import job_page, job_parts, output_files
from console.presenters.jobs.job_query import JobQuery
from jobs.artifacts import objects
from jobs.models import Job, StoredObject
from jobs.outputs import browsing, previews
from jobs.projects import audit


@require_safe
@login_required
def job_outputs(request: HttpRequest, job_id: int) -> HttpResponse:
    job = _job(request, job_id)
    path = _path(request)
    try:
        position = bytes.fromhex(request.GET.get("at", ""))
    except ValueError:
        raise Http404 from None
    found = output_files.page(job, path, position, access.can(request.user, "shell", job))
    if not found.is_found:
        raise Http404
    may_delete = access.can(request.user, "delete", job)
    context = {**_context(request, job), "outputs": found, "may_delete": may_delete}
    return render(request, "jobs/outputs.html", context)


@require_safe
@login_required
def job_output(request: HttpRequest, job_id: int) -> HttpResponse:
    job = _job(request, job_id)
    path = _path(request)
    if not path:
        return redirect("job-outputs", job_id=job.pk)
    found = output_files.file_page(job, path, _stored(job, path))
    may_delete = access.can(request.user, "delete", job)
    return render(
        request, "jobs/output.html", {**_context(request, job), "file": found, "may_delete": may_delete}
    )


@require_safe
@login_required
def output_image(request: HttpRequest, job_id: int) -> HttpResponse:
    """An image of a kind that no browser runs, judged by its bytes."""
    job = _job(request, job_id)
    path = _path(request)
    if not path:
        return redirect("job-outputs", job_id=job.pk)
    stored = _stored(job, path)
    kind = previews.image_type(stored)
    if not kind:
        raise Http404
    answer = HttpResponse(b"".join(objects.open_object(stored)), content_type=kind)
    answer["X-Content-Type-Options"] = "nosniff"
    answer["Content-Security-Policy"] = "default-src 'none'; sandbox"
    answer["Cache-Control"] = "private, no-store"
    return answer


@require_POST
@login_required
def delete_output(request: HttpRequest, job_id: int) -> HttpResponse:
    job = _job(request, job_id, "delete")
    path = browsing.clean(request.POST.get("path", "")[:1200])
    now = timezone.now()
    number = browsing.delete(job, path, now) if path else 0
    if number:
        after = {"path": path, "files": number}
        actor = person(request).get_username()
        audit.record(actor, "outputs.delete", "job", str(job.pk), None, after, now, job.project)
    text = ngettext("%(n)s file is deleted.", "%(n)s files are deleted.", number) % {"n": number}
    messages.success(request, text)
    return redirect("job-outputs", job_id=job.pk)


def _job(request: HttpRequest, job_id: int, verb: Verb = "see_log") -> Job:
    return access.get_or_404(request.user, verb, Job.objects.select_related("project"), pk=job_id)


def _path(request: HttpRequest) -> str:
    given = request.GET.get("path", "")
    path = browsing.clean(given) if len(given) <= 1200 else None
    if path is None:
        raise Http404
    return path


def _stored(job: Job, path: str) -> StoredObject:
    found = browsing.find(job, path)
    if found is None:
        raise Http404
    return found


def _context(request: HttpRequest, job: Job) -> dict[str, Any]:
    context = job_parts.context(("job-head",), job, person(request), request.GET.dict())
    replica = JobQuery.from_query(request.GET).replica
    context["page"] = job_page.page(job, person(request), job_page.FILES, replica)
    return context
