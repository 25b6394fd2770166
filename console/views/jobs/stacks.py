"""The page with the stacks of a job. They are taken when somebody asks for them by the button, and kept nowhere.

Whoever may open a shell may take them.
"""

from __future__ import annotations

import base64
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from agents.infra.refusals import Refused, Unavailable
from agents.infra.sentences import shown
from console.auth import access
from console.auth.person import person
from console.presenters.shells import job_shells, stack_groups
from jobs import stacks
from jobs.models import Job


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def job_stacks(request: HttpRequest, job_id: int) -> HttpResponse:
    job = access.get_or_404(request.user, "shell", Job.objects.select_related("project"), pk=job_id)
    user = person(request)
    status, context = 200, dict[str, Any](job=job, may_take=job_shells.may_open(job, user))
    if request.method == "POST":
        try:
            taken = stacks.take(job, user.get_username(), str(user.pk), timezone.now())
            context["stacks"] = found = stack_groups.for_page(stack_groups.folded(job.pk, taken))
            text = base64.b64encode(stack_groups.as_text(found).encode()).decode()
            # In the page itself: they are kept nowhere, and others would be taken by then.
            context["download"] = f"data:text/plain;charset=utf-8;base64,{text}"
        except Refused as refused:
            status, context["problem"] = 409, shown(refused.message)
        except Unavailable as unavailable:
            status, context["problem"] = 503, shown(unavailable.message)
    return render(request, "shells/stacks.html", context, status=status)
