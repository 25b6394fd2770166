"""What training code can rely on, for whoever writes it."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from jobs.rules.lifecycle.retry import MOST_INTERNAL_TRIES, MOST_RESTARTS, MOST_RETRIES


@require_safe
@login_required
def training(request: HttpRequest) -> HttpResponse:
    context = {"restarts": MOST_RESTARTS, "retries": MOST_RETRIES, "tries": MOST_INTERNAL_TRIES}
    return render(request, "help/training.html", context)
