"""The start page: the first steps while the person sees no job yet, then the list of jobs."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from agents.models import Host, HostStatus
from console.auth import access
from jobs.models import Job


@require_safe
@login_required
def home(request: HttpRequest) -> HttpResponse:
    started = access.visible(request.user, Job.objects.all()).exists()
    return redirect("jobs" if started else "welcome")


@require_safe
@login_required
def welcome(request: HttpRequest) -> HttpResponse:
    hosts = access.visible(request.user, Host.machines.all())
    context = {
        "host": hosts.order_by("id").first(),
        "usable": hosts.filter(status=HostStatus.UP).exists(),
        "job": access.visible(request.user, Job.objects.all()).order_by("-id").first(),
        "may_manage": access.can(request.user, "manage", Host),
        "may_submit": access.can(request.user, "submit", Job),
    }
    return render(request, "welcome.html", context)
