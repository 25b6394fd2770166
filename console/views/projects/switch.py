"""The project that a person works in: lists show it unless their address says otherwise. A cookie of the browser."""

from __future__ import annotations

from urllib.parse import urlencode, urlsplit

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_http_methods

from console.auth import access
from console.views.fragments import page_or_fragment
from jobs.models import Project

COOKIE = "project"
YEAR_S = 365 * 24 * 3600


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def switch(request: HttpRequest) -> HttpResponse:
    """Choose the project. An empty name means all of them."""
    projects = access.visible(request.user, Project.objects.filter(archived_at=None).order_by("name"))
    if request.method != "POST":
        back = request.htmx.current_url_abs_path or "" if request.htmx else ""  # type: ignore[attr-defined]
        context = {"projects": projects, "chosen": request.COOKIES.get(COOKIE, ""), "back": back}
        return page_or_fragment(request, "projects/switch.html", "projects/_switch.html", context)
    wanted = request.POST.get("project", "")
    response = HttpResponseRedirect(_back(request))
    if not wanted:
        response.delete_cookie(COOKIE, samesite="Lax")
    elif projects.filter(name=wanted).exists():
        secure = request.is_secure()
        response.set_cookie(COOKIE, wanted, max_age=YEAR_S, samesite="Lax", httponly=True, secure=secure)
    return response


def chosen_list(request: HttpRequest) -> HttpResponse | None:
    """Where a list is asked for by its bare address: the same list of the chosen project. The address says all."""
    name = request.COOKIES.get(COOKIE, "")
    if request.GET or not name:
        return None
    if not access.visible(request.user, Project.objects.filter(name=name)).exists():
        return None
    return redirect(f"{request.path}?{urlencode({'project': name})}")


def _back(request: HttpRequest) -> str:
    """The page from which the person came, without filters that belong to the project of before."""
    where = request.POST.get("next", "")
    if not url_has_allowed_host_and_scheme(where, {request.get_host()}, require_https=request.is_secure()):
        return resolve_url("jobs")
    return urlsplit(where).path
