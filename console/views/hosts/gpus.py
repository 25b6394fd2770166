"""The map of the GPUs of all hosts."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from agents.models import Host
from console.auth import access
from console.auth.person import person
from console.presenters.hosts.gpu_map import gpu_map
from console.views.fragments import page_or_fragment


@require_safe
@login_required
def gpus(request: HttpRequest) -> HttpResponse:
    access.require(request.user, "see", Host)
    context = {"map": gpu_map(person(request), request.GET.dict())}
    return page_or_fragment(request, "hosts/gpus.html", "hosts/_gpus_exchange.html", context)
