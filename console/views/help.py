"""The help page for authors of training code: what the code can rely on."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from jobs.rules.lifecycle.retry import MAX_INTERNAL_TRIES, MAX_RESTARTS, MAX_RETRIES


@require_safe
@login_required
def training(request: HttpRequest) -> HttpResponse:
    context = {"restarts": MAX_RESTARTS, "retries": MAX_RETRIES, "tries": MAX_INTERNAL_TRIES}
    return render(request, "help/training.html", context)
