"""Maintenance of a host by an admin: cordon, drain, uncordon, PID namespaces, data address, declare gone."""

from __future__ import annotations

from datetime import timedelta

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from agents.hosts.data_address import address_for_data
from agents.infra.refusals import Refused
from agents.infra.sentences import shown
from agents.models import Host
from console.auth import access
from console.auth.person import person
from console.forms.hosts import Contain, Cordon, DataNetwork, DeclareGone, Drain, Logins
from console.presenters.hosts import host_page as presenter
from jobs.lifecycle.host_maintenance import maintenance_of
from jobs.maintenance import cordon_and_drain as service
from jobs.maintenance import logins as login_service


@require_safe
@login_required
def maintenance(request: HttpRequest, host_id: int) -> HttpResponse:
    return _page(request, _host(request, host_id))


@require_POST
@login_required
def cordon(request: HttpRequest, host_id: int) -> HttpResponse:
    row, form = _host(request, host_id), Cordon(request.POST)
    if not form.is_valid():
        return _page(request, row, cordon=form)
    with transaction.atomic():
        service.cordon(row, form.cleaned_data["message"], person(request).username, timezone.now())
    messages.success(request, _("{name} takes no new jobs. Running jobs go on.").format(name=row.name))
    return redirect("host", host_id=host_id)


@require_POST
@login_required
def drain(request: HttpRequest, host_id: int) -> HttpResponse:
    row, form, now = _host(request, host_id), Drain(request.POST), timezone.now()
    if not form.is_valid():
        return _page(request, row, drain=form)
    typed = form.cleaned_data
    until = None if typed["deadline"] is None else now + timedelta(seconds=typed["deadline"])
    try:
        with transaction.atomic():
            service.drain(row, typed["message"], until, typed["force"], person(request).username, now)
    except Refused as refused:
        form.add_error("deadline" if refused.field == "until" else None, shown(refused.message))
        return _page(request, row, drain=form)
    messages.success(request, _("{name} is being drained.").format(name=row.name))
    return redirect("host", host_id=host_id)


@require_POST
@login_required
def contain(request: HttpRequest, host_id: int) -> HttpResponse:
    row, form = _host(request, host_id), Contain(request.POST)
    switch = form.is_valid() and form.cleaned_data["pid_namespaces"]
    try:
        with transaction.atomic():
            service.set_pid_namespaces(row, switch, person(request).username, timezone.now())
    except Refused as refused:
        form.add_error("pid_namespaces", shown(refused.message))
        return _page(request, row, contain=form)
    text = (
        _("New runs on {host} get PID namespaces.")
        if switch
        else _("New runs on {host} get no PID namespaces.")
    )
    messages.success(request, text.format(host=row.name))
    return redirect("host", host_id=host_id)


@require_POST
@login_required
def network(request: HttpRequest, host_id: int) -> HttpResponse:
    row = _host(request, host_id)
    form = DataNetwork(row, request.POST)
    if not form.is_valid():
        return _page(request, row, network=form)
    chosen = form.cleaned_data["data_address"]
    try:
        with transaction.atomic():
            service.set_data_address(row, chosen, person(request).username, timezone.now())
    except Refused as refused:
        form.add_error("data_address", shown(refused.message))
        return _page(request, row, network=form)
    row.refresh_from_db()
    messages.success(
        request,
        _("New runs on {name} are reached at {address_for_data}.").format(
            name=row.name, address_for_data=address_for_data(row)
        ),
    )
    return redirect("host", host_id=host_id)


@require_POST
@login_required
def set_logins(request: HttpRequest, host_id: int) -> HttpResponse:
    row, form = _host(request, host_id), Logins(request.POST)
    if not form.is_valid():
        return _page(request, row, logins=form)
    template = form.cleaned_data["template"]
    try:
        with transaction.atomic():
            login_service.set_template(row, template, person(request).username, timezone.now())
    except Refused as refused:
        form.add_error("template", shown(refused.message))
        return _page(request, row, logins=form)
    text = (
        _("Each project has a login of its own on {host}. Runs that have started keep theirs.")
        if template
        else _("{host} has one login for all. Runs that have started keep theirs.")
    )
    messages.success(request, text.format(host=row.name))
    return redirect("host", host_id=host_id)


@require_POST
@login_required
def uncordon(request: HttpRequest, host_id: int) -> HttpResponse:
    row = _host(request, host_id)
    with transaction.atomic():
        service.uncordon(row, person(request).username, timezone.now())
    messages.success(request, _("{name} takes jobs again.").format(name=row.name))
    return redirect("host", host_id=host_id)


@require_POST
@login_required
def declare_gone(request: HttpRequest, host_id: int) -> HttpResponse:
    row, form = _host(request, host_id), DeclareGone(request.POST)
    try:
        with transaction.atomic():
            service.declare_gone(row, form.data.get("name", ""), person(request).username, timezone.now())
    except Refused as refused:
        form.add_error("name" if refused.field == "name" else None, shown(refused.message))
        return _page(request, row, gone=form)
    messages.success(request, _("{name} is declared gone. Its runs count as lost.").format(name=row.name))
    return redirect("host", host_id=host_id)


def _host(request: HttpRequest, host_id: int) -> Host:
    return access.get_or_404(
        request.user, "manage", Host.objects.select_related("location", "maintenance"), pk=host_id
    )


def _page(
    request: HttpRequest,
    row: Host,
    cordon: Cordon | None = None,
    drain: Drain | None = None,
    gone: DeclareGone | None = None,
    contain: Contain | None = None,
    logins: Logins | None = None,
    network: DataNetwork | None = None,
) -> HttpResponse:
    maintenance = maintenance_of(row)
    known = {"message": maintenance.cordon_message}
    context = {
        "host": presenter.live(row, person(request)),
        "cordon": cordon or Cordon(initial=known),
        "contain": contain or Contain(initial={"pid_namespaces": row.pid_namespaces}),
        "network": network or DataNetwork(row),
        "gone": gone or DeclareGone(),
        "logins": logins or Logins(initial={"template": login_service.template_of(row)}),
        "may_be_gone": row.status not in service.ANSWERS and maintenance.gone_at is None,
        "drain": drain or Drain(initial={**known, "force": maintenance.drain_force}),
    }
    return render(request, "hosts/maintenance.html", context)
