"""The map of the GPUs of all hosts."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from agents.models import Host
from console.auth import access
from console.auth.person import person
from console.presenters.hosts.gpu_map import gpu_map


@require_safe
@login_required
def gpus(request: HttpRequest) -> HttpResponse:
    access.require(request.user, "see", Host)
    return render(request, "hosts/gpus.html", {"map": gpu_map(person(request), request.GET.dict())})
