"""The list of jobs; cancel and delete one. The tabs of a job's page are in job_tabs.py."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from agents.infra.sentences import shown
from console import saved_views
from console.auth import access
from console.auth.person import person
from console.presenters.badges import JOB
from console.presenters.jobs import job_list
from console.presenters.view_links import view_links
from console.views.fragments import page_or_fragment
from console.views.projects.switch import chosen_list
from jobs import services
from jobs.models import Job

# So many saved views stand above the list; all of them have a page.
MOST_VIEWS = 12


@require_safe
@login_required
def jobs(request: HttpRequest) -> HttpResponse:
    if elsewhere := chosen_list(request):
        return elsewhere
    user = person(request)
    found = job_list.job_list(user, request.GET.dict())
    may_submit = access.can(request.user, "submit", Job)
    views = view_links(user, request.GET.urlencode(), list(saved_views.visible(user)[:MOST_VIEWS]))
    context = {
        "noun": "jobs",
        "list": found,
        "views": views,
        "states": JOB.values(),
        "may_submit": may_submit,
    }
    return page_or_fragment(request, "jobs/list.html", "parts/filtered_list.html", context)


@require_POST
@login_required
def cancel(request: HttpRequest, job_id: int) -> HttpResponse:
    row = access.get_or_404(request.user, "cancel", Job.objects.all(), pk=job_id)
    with transaction.atomic():
        services.cancel(row, person(request).username, timezone.now())
    return redirect("job", job_id=job_id)


@require_POST
@login_required
def delete(request: HttpRequest, job_id: int) -> HttpResponse:
    row = access.get_or_404(request.user, "delete", Job.objects.all(), pk=job_id)
    try:
        with transaction.atomic():
            services.delete(row, person(request).username, timezone.now())
    except services.Refused as refused:
        messages.error(request, shown(refused.message))
        return redirect("job", job_id=job_id)
    messages.success(
        request, _("“{display_name}” and its logs are deleted.").format(display_name=row.display_name)
    )
    return redirect("jobs")
