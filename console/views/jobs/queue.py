"""The page of the queue."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from console.auth.person import person
from console.presenters.queue import queue_page
from console.views.fragments import page_or_fragment
from console.views.projects.switch import chosen_list


@require_safe
@login_required
def queue(request: HttpRequest) -> HttpResponse:
    if elsewhere := chosen_list(request):
        return elsewhere
    found = queue_page.queue(person(request), request.GET.dict())
    return page_or_fragment(request, "jobs/queue.html", "jobs/_queue_exchange.html", {"queue": found})
