"""Pages of hosts: list and show them, add, check and remove them, accept keys, act on their GPUs and stray runs."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from agents.hosts import adding
from agents.infra.refusals import Refused
from agents.infra.sentences import shown
from agents.models import Host, Location
from agents.ssh import keys
from console.auth import access
from console.auth.person import person
from console.forms.hosts import AcceptKey, AddHost, PasteHosts
from console.presenters.hosts import host_filters, host_list, host_load, kept_files
from console.presenters.hosts import host_page as presenter
from console.views.confirmation import asked_again
from console.views.fragments import page_or_fragment
from jobs.host_sync import strays
from jobs.maintenance import enrol_host, gpus, kept, logins
from jobs.maintenance.remove_host import remove_host
from jobs.wake import hints


@require_safe
@login_required
def hosts(request: HttpRequest) -> HttpResponse:
    found = host_list.host_list(person(request), request.GET.dict())
    context = {"noun": "hosts", "list": found, "states": host_filters.STATES}
    context |= {"uses": host_filters.uses(), "orders": host_filters.orders()}
    return page_or_fragment(request, "hosts/list.html", "parts/filtered_list.html", context)


@require_http_methods(["GET", "POST"])
@login_required
def add(request: HttpRequest) -> HttpResponse:
    _only_managers(request)
    form = AddHost(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            with transaction.atomic():
                typed = dict(form.cleaned_data)
                template = typed.pop("login_template")
                host = _add(request, **typed)
                if template:
                    _set_template(request, host, template)
        except Refused as refused:
            form.add_error(refused.field if refused.field in form.fields else None, shown(refused.message))
        else:
            return redirect("host", host_id=host.pk)
    return _add_page(request, form=form)


@require_POST
@login_required
def paste(request: HttpRequest) -> HttpResponse:
    """Add several hosts, or none if one line is wrong."""
    _only_managers(request)
    form = PasteHosts(request.POST)
    if form.is_valid():
        typed = form.cleaned_data
        try:
            with transaction.atomic():
                rows = adding.parse_pasted(typed["hosts"], typed["user"])
                _add_all(request, rows, typed["location"])
        except adding.InvalidLines as refused:
            form.add_error("hosts", [shown(each) for each in refused.messages])
        except Refused as refused:
            form.add_error("location" if refused.field == "location" else "hosts", shown(refused.message))
        else:
            messages.success(
                request, _("{number} hosts are added. Accept the key of each.").format(number=len(rows))
            )
            return redirect("host-keys")
    return _add_page(request, pasted=form)


@require_safe
@login_required
def host(request: HttpRequest, host_id: int) -> HttpResponse:
    row = access.get_or_404(
        request.user, "see", Host.every.select_related("location", "maintenance"), pk=host_id
    )
    load = host_load.load_now(row, timezone.now())
    page = {"host": presenter.live(row, person(request)), "load": load}
    return render(request, "hosts/host.html", page | {"kept": kept_files.kept_files(row, person(request))})


@require_POST
@login_required
def accept(request: HttpRequest, host_id: int) -> HttpResponse:
    row = access.get_or_404(request.user, "manage", Host.objects.all(), pk=host_id)
    form = AcceptKey(request.POST)
    if page := asked_again(request, _("accept the key of {host}").format(host=row.name)):
        return page
    try:
        enrol_host.accept_host_key(
            row, form.data.get("fingerprint", ""), person(request).username, timezone.now()
        )
    except Refused as refused:
        messages.error(request, shown(refused.message))
    else:
        hints.enrol(row.pk)
    return redirect("host", host_id=host_id)


@require_POST
@login_required
def check(request: HttpRequest, host_id: int) -> HttpResponse:
    row = access.get_or_404(request.user, "manage", Host.objects.all(), pk=host_id)
    enrol_host.check_again(row, person(request).username, timezone.now())
    messages.info(request, _("The check of the host has started."))
    return redirect("host", host_id=host_id)


@require_POST
@login_required
def remove(request: HttpRequest, host_id: int) -> HttpResponse:
    row = access.get_or_404(request.user, "manage", Host.objects.all(), pk=host_id)
    try:
        with transaction.atomic():
            remove_host(row, person(request).username, timezone.now())
    except Refused as refused:
        messages.error(request, shown(refused.message))
        return redirect("host", host_id=host_id)
    messages.success(request, _("{name} is removed. Its history stays.").format(name=row.name))
    return redirect("hosts")


@require_POST
@login_required
def discard_kept(request: HttpRequest, host_id: int, kind: str, digest: str) -> HttpResponse:
    """Have the host remove something that it keeps."""
    row = access.get_or_404(request.user, "manage", Host.objects.all(), pk=host_id)
    try:
        with transaction.atomic():
            kept.discard(row, kind, digest, person(request).username, timezone.now())
    except Refused as refused:
        messages.error(request, shown(refused.message))
    else:
        messages.info(request, _("The host is asked to remove it. Its history says what became of that."))
    return redirect("host", host_id=host_id)


@require_POST
@login_required
def gpu_act(request: HttpRequest, host_id: int, gpu_id: int, what: str) -> HttpResponse:
    """Act on a quarantined GPU: check it again, kill the processes on it, or use it anyway."""
    row = access.get_or_404(request.user, "manage", Host.objects.all(), pk=host_id)
    gpu = row.gpus.filter(pk=gpu_id).first()
    if gpu is None or what not in gpus.ACTS:
        raise Http404
    try:
        with transaction.atomic():
            messages.success(request, shown(gpus.act(gpu, what, person(request).username, timezone.now())))
    except Refused as refused:
        messages.error(request, shown(refused.message))
    return redirect("host", host_id=host_id)


@require_POST
@login_required
def stray_act(request: HttpRequest, host_id: int, stray_id: int, act: str) -> HttpResponse:
    """Act on a run that the host reports and the database does not know: stop it, or dismiss it from the page."""
    row = access.get_or_404(request.user, "manage", Host.objects.all(), pk=host_id)
    stray = strays.shown(row).filter(pk=stray_id).first()
    if stray is None or act not in strays.ACTS:
        raise Http404
    try:
        with transaction.atomic():
            strays.ACTS[act](row, stray.run, person(request).username, timezone.now())
    except Refused as refused:
        messages.error(request, shown(refused.message))
    return redirect("host", host_id=host_id)


def _only_managers(request: HttpRequest) -> None:
    access.require(request.user, "manage", Host)


def _add(
    request: HttpRequest, name: str, address: str, port: int, user: str, location: str, jump: str
) -> Host:
    who, now = person(request).username, timezone.now()
    host = enrol_host.add_host(name, address, port, user, location, jump, who, now)
    hints.enrol(host.pk)
    return host


def _set_template(request: HttpRequest, host: Host, template: str) -> None:
    try:
        logins.set_template(host, template, person(request).username, timezone.now())
    except Refused as refused:
        raise Refused("login_template", shown(refused.message)) from None


def _add_page(
    request: HttpRequest, form: AddHost | None = None, pasted: PasteHosts | None = None
) -> HttpResponse:
    context = {
        "form": form or AddHost(),
        "pasted": pasted or PasteHosts(),
        "locations": Location.objects.all(),
        "key": keys.public_line(),
        "command": presenter.append_command(),
    }
    return render(request, "hosts/add.html", context)


def _add_all(request: HttpRequest, rows: Sequence[adding.PastedHost], location: str) -> None:
    wrong = []
    for row in rows:
        try:
            _add(request, row.name, row.address, row.port, row.user, location, row.jump)
        except Refused as refused:
            if refused.field == "location":
                raise
            wrong.append(shown(refused.message))
    if wrong:
        raise adding.InvalidLines(wrong[: adding.MAX_MESSAGES])
