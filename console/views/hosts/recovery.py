"""Recovery mode: the runs that hosts report and a restored database lacks, and the confirmation that ends it."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from agents.infra.refusals import Refused
from agents.infra.sentences import shown
from agents.models import Host
from console.auth import access
from console.auth.person import person
from console.forms.hosts import BeginRecovery
from console.presenters.hosts import recovery_page
from jobs.host_sync import recovery_mode


@require_safe
@login_required
def recovery(request: HttpRequest) -> HttpResponse:
    _only_managers(request)
    return _page(request)


@require_POST
@login_required
def begin(request: HttpRequest) -> HttpResponse:
    _only_managers(request)
    form = BeginRecovery(request.POST)
    if not form.is_valid():
        return _page(request, form)
    try:
        with transaction.atomic():
            recovery_mode.begin(form.cleaned_data["why"], person(request).username, timezone.now())
    except Refused as refused:
        form.add_error("why" if refused.field == "why" else None, shown(refused.message))
        return _page(request, form)
    messages.success(request, _("Recovery mode has begun. Nothing is started or stopped until you confirm."))
    return redirect("recovery")


@require_POST
@login_required
def confirm(request: HttpRequest) -> HttpResponse:
    _only_managers(request)
    try:
        with transaction.atomic():
            recovery_mode.confirm(request.POST.getlist("stop"), person(request).username, timezone.now())
    except Refused as refused:
        messages.error(request, shown(refused.message))
        return redirect("recovery")
    messages.success(request, _("Recovery mode is over. Jobs are started and stopped again."))
    return redirect("hosts")


def _page(request: HttpRequest, form: BeginRecovery | None = None) -> HttpResponse:
    context = {"found": recovery_page.page(), "begin": form or BeginRecovery()}
    return render(request, "recovery.html", context)


def _only_managers(request: HttpRequest) -> None:
    access.require(request.user, "manage", Host)
