"""Copies of a job: submit it once more, and compare it with another job."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from agents.infra.sentences import shown
from console.auth import access
from console.auth.person import person
from console.presenters.new_job import spec_diff
from jobs import services
from jobs.models import Job
from jobs.rules.spec.parse import InvalidDocument

MAX_REQUEST_ID = 60


@require_POST
@login_required
def rerun(request: HttpRequest, job_id: int) -> HttpResponse:
    """Submit the same job once more; for two clicks on one page, once.

    If that is refused, the form with the copy opens and says what is missing.
    """
    job = access.get_or_404(request.user, "see", Job.objects.select_related("project"), pk=job_id)
    access.project_or_404(request.user, "submit", job.project.name)
    request_id, now = request.POST.get("request_id", "")[:MAX_REQUEST_ID] or None, timezone.now()
    may_prioritize = access.can(request.user, "prioritize", job.project)
    try:
        with transaction.atomic():
            again = services.rerun(job, person(request), request_id, now, may_prioritize)
    except InvalidDocument as invalid:
        return _ask(request, job, " ".join(shown(each.description) for each in invalid.violations))
    except (services.Refused, services.Unavailable) as refused:
        return _ask(request, job, shown(refused.message))
    if again.created_at < now:
        messages.info(
            request, _("This was submitted already. To run the job once more, load its page again.")
        )
    return redirect("job", job_id=again.pk)


@require_safe
@login_required
def diff(request: HttpRequest, job_id: int) -> HttpResponse:
    """The difference to another job, `?with=M`; without it, to the job that this one is a copy of."""
    rows = Job.objects.select_related("project")
    job = access.get_or_404(request.user, "see", rows, pk=job_id)
    named = request.GET.get("with", "").strip()
    if named:
        if not (named.isascii() and named.isdigit() and len(named) <= 19):
            raise Http404
        other: Job | None = access.get_or_404(request.user, "see", rows, pk=int(named))
    else:
        other = access.visible(request.user, rows.filter(pk=job.cloned_from or 0)).first()
    context = {"job": job, "other": other, "lines": spec_diff.diff(other, job) if other else []}
    return render(request, "jobs/diff.html", context)


def _ask(request: HttpRequest, job: Job, why: str) -> HttpResponse:
    messages.warning(request, _("Not submitted yet. {why}").format(why=why))
    return redirect("clone-job", job_id=job.pk)
