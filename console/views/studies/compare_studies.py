"""The page that compares two to five studies."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from console.auth import access
from console.presenters.jobs.job_filters import cursor_number
from console.presenters.studies.study_comparison import FEWEST, MOST, compare
from jobs.models import TuningJob


@require_safe
@login_required
def compare_studies(request: HttpRequest) -> HttpResponse:
    """`/studies/compare?study=1&study=2`. A study that the person may not see is none, and so is the whole page."""
    ids = list(dict.fromkeys(cursor_number(text) for text in request.GET.getlist("study")))
    if not FEWEST <= len(ids) <= MOST:
        messages.error(
            request, _("Select {fewest} to {most} studies to compare.").format(fewest=FEWEST, most=MOST)
        )
        return redirect("studies")
    rows = TuningJob.objects.filter(pk__in=[pk for pk in ids if pk is not None]).select_related("project")
    found = {study.pk: study for study in access.visible(request.user, rows)}
    if found.keys() != set(ids):
        raise Http404
    studies = [found[pk] for pk in ids if pk is not None]
    context = {"comparison": compare(studies, request.GET.dict())}
    return render(request, "studies/compare.html", context)
