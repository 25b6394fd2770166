"""The page that compares two to five jobs."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from console.auth import access
from console.presenters.jobs.comparison import FEWEST, MOST, compare
from console.presenters.jobs.job_filters import cursor_number
from jobs.models import Job


@require_safe
@login_required
def compare_jobs(request: HttpRequest) -> HttpResponse:
    """`/jobs/compare?job=1&job=2`. A job that the person may not see is none, and so is the whole page."""
    ids = list(dict.fromkeys(cursor_number(text) for text in request.GET.getlist("job")))
    if not FEWEST <= len(ids) <= MOST:
        messages.error(
            request, _("Select {fewest} to {most} jobs to compare.").format(fewest=FEWEST, most=MOST)
        )
        return redirect("jobs")
    rows = access.visible(request.user, Job.objects.filter(pk__in=[pk for pk in ids if pk is not None]))
    found = {job.pk: job for job in rows.select_related("project")}
    if found.keys() != set(ids):
        raise Http404
    jobs = [found[pk] for pk in ids if pk is not None]
    return render(request, "jobs/compare.html", {"comparison": compare(jobs)})


def address(ids: Sequence[int]) -> str:
    """The address of the page that compares these jobs."""
    return f"{reverse('compare-jobs')}?{urlencode({'job': ids}, doseq=True)}"
