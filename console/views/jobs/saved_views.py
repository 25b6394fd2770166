"""Saved views of the list of jobs: all that a person sees, keeping one, removing one."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from agents.infra.refusals import Refused
from agents.infra.sentences import shown
from console import saved_views
from console.auth import access
from console.auth.person import person
from console.presenters.numbered_pages import numbered
from console.presenters.view_links import cleaned, view_links


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def views(request: HttpRequest) -> HttpResponse:
    """The list of views, and the form that keeps the list of jobs of the query `query`."""
    user = person(request)
    if request.method != "POST":
        return _page(request, request.GET.urlencode())
    query, named = cleaned(request.POST.get("query", "")), request.POST.get("project", "")
    project = access.project_or_404(user, "submit", named) if named else None
    try:
        with transaction.atomic():
            view = saved_views.save(user, project, request.POST.get("name", ""), query, timezone.now())
    except Refused as refused:
        typed = {"name": request.POST.get("name", ""), "project": named, "refused": shown(refused.message)}
        return _page(request, query, **typed)
    messages.success(request, _("The view “{name}” is kept.").format(name=view.name))
    return HttpResponseRedirect(f"{reverse('jobs')}?{view.query}")


def _page(request: HttpRequest, query: str, **typed: str) -> HttpResponse:
    """`query`: of the list that may be kept."""
    user, kept = person(request), cleaned(query)
    here = reverse("job-views") + (f"?{kept}" if kept else "")
    pages = numbered(saved_views.visible(user), request.GET.get("page", ""), here)
    return render(
        request, "jobs/views.html", {"views": view_links(user, kept, pages.rows), "pages": pages, **typed}
    )


@require_POST
@login_required
def remove(request: HttpRequest, view_id: int) -> HttpResponse:
    with transaction.atomic():
        view = saved_views.remove(person(request), view_id)
    messages.success(request, _("The view “{name}” is removed.").format(name=view.name))
    return redirect("job-views")
