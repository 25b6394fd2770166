"""Help: on each page, on keys, on what training code can rely on, and on the REST API."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.module_loading import import_string
from django.views.decorators.http import require_safe

from console.presenters import api_calls, help_pages
from console.views.fragments import page_or_fragment
from jobs.rules.lifecycle.retry import MAX_INTERNAL_TRIES, MAX_RESTARTS, MAX_RETRIES

# By name: the package that writes it is imported when somebody asks for it.
DESCRIPTION = "console.api.openapi.generator.description"


@require_safe
@login_required
def api(request: HttpRequest) -> HttpResponse:
    """The calls of the REST API; with `of`, all about those whose addresses begin with it."""
    described = import_string(DESCRIPTION)()
    groups = api_calls.groups(described)
    chosen = next((group for group in groups if group.name == request.GET.get("of")), None)
    types = api_calls.types_of(described, chosen) if chosen else ()
    return render(request, "help/api.html", {"groups": groups, "chosen": chosen, "types": types})


@require_safe
@login_required
def training(request: HttpRequest) -> HttpResponse:
    context = {"restarts": MAX_RESTARTS, "retries": MAX_RETRIES, "tries": MAX_INTERNAL_TRIES}
    return render(request, "help/training.html", context)


@require_safe
@login_required
def keys(request: HttpRequest) -> HttpResponse:
    """The keys that every page knows: a page, and a dialog above any page."""
    return page_or_fragment(request, "help/keys.html", "help/_keys.html", {})


@require_safe
@login_required
def index(request: HttpRequest) -> HttpResponse:
    return page_or_fragment(request, "help/index.html", "help/_index.html", {"topics": help_pages.topics()})


@require_safe
@login_required
def page(request: HttpRequest, topic: str) -> HttpResponse:
    """The help on one page: a page, and a dialog above any page."""
    if topic not in help_pages.TITLES:
        raise Http404
    context = {"title": help_pages.title_of(topic), "text": f"help/pages/{topic}.html"}
    return page_or_fragment(request, "help/page.html", "help/_page.html", context)
