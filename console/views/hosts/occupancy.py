"""The occupancy of GPUs over time: a page, and all of it as CSV."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.views.decorators.http import require_safe

from agents.models import Host
from console.auth import access
from console.auth.person import person
from console.presenters.hosts import occupancy as presenter
from console.views.fragments import page_or_fragment


@require_safe
@login_required
def occupancy(request: HttpRequest) -> HttpResponse:
    access.require(request.user, "see", Host)
    context = {"occupancy": presenter.occupancy(person(request), request.GET.dict())}
    return page_or_fragment(request, "hosts/occupancy.html", "hosts/_occupancy.html", context)


@require_safe
@login_required
def as_csv(request: HttpRequest) -> StreamingHttpResponse:
    access.require(request.user, "see", Host)
    parts = presenter.csv_parts(person(request), request.GET.dict())
    response = StreamingHttpResponse(parts, content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="occupancy.csv"'
    return response
