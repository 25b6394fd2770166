"""The usage of a month: sums on a page, all jobs as CSV."""

from __future__ import annotations

from datetime import date

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.auth import access
from console.auth.person import person
from console.presenters.projects import usage as presenter
from console.presenters.projects import usage_csv
from console.views.projects.switch import chosen_list
from jobs.models import Project
from jobs.projects import usage as accounts


@require_safe
@login_required
def usage(request: HttpRequest) -> HttpResponse:
    if elsewhere := chosen_list(request):
        return elsewhere
    month, only = _month(request), _only_project(request)
    report = presenter.report(person(request), only, month, timezone.now())
    return render(request, "usage/report.html", {"report": report})


@require_safe
@login_required
def as_csv(request: HttpRequest) -> StreamingHttpResponse:
    month, only = _month(request), _only_project(request)
    names = presenter.names_of(person(request), only)
    return usage_csv.csv_response(month, accounts.report_by_job(month, names, timezone.now()), names)


def _month(request: HttpRequest) -> date:
    month = presenter.asked_month(request.GET.get("month", ""), timezone.now())
    if month is None:
        raise Http404
    return month


def _only_project(request: HttpRequest) -> Project | None:
    """Return the project that the address names, or None for all projects that the person may see."""
    named = request.GET.get("project", "")
    return access.project_or_404(request.user, "see_usage", named) if named else None
