"""Hosts that are selected in their list or in the map of GPUs: what will be done is shown with its number, then done.

Each act is the one of the host's own page: the same service, right and audit, host by host.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST

from agents.infra.refusals import Refused
from agents.infra.sentences import shown
from agents.models import Host
from console.auth import access
from console.auth.person import person
from console.forms.hosts import Cordon, Drain
from console.presenters.hosts import host_selection
from console.presenters.hosts.host_selection import Filters, SelectedHost
from jobs.maintenance import cordon_and_drain as service
from jobs.maintenance import enrol_host
from jobs.rules.list_text import list_text

CORDON, DRAIN, UNCORDON, CHECK = "cordon", "drain", "uncordon", "check"
FORMS = {CORDON: Cordon, DRAIN: Drain, UNCORDON: None, CHECK: None}
SHOWN_REFUSALS = 3
MAX_DIGITS = 18


@require_POST
@login_required
def bulk(request: HttpRequest) -> HttpResponse:
    access.require(request.user, "manage", Host)
    act, user = request.POST.get("act", ""), person(request)
    query = QueryDict(request.POST.get("filters", "")[:2_000]).dict()
    of_list = request.POST.get("list") == "hosts"
    filters = host_selection.filters_of(of_list, query)
    if act not in FORMS:
        messages.error(request, _("Choose what to do with the selected hosts."))
        return redirect(filters.address())
    ids = _ids(request, user, filters)
    found = host_selection.select(user, ids[: host_selection.MOST])
    if not found:
        messages.error(request, _("Select the hosts first: tick the boxes beside them."))
        return redirect(filters.address())
    confirmed = request.POST.get("confirm") == str(len(found))
    make = FORMS[act]
    form = make(request.POST if confirmed else None) if make else None
    if not confirmed or (form and not form.is_valid()):
        return _ask(request, act, filters, of_list, found, form, len(ids) > host_selection.MOST)
    _do(request, act, found, form)
    return redirect(filters.address())


def _ids(request: HttpRequest, user: User, filters: Filters) -> Sequence[int]:
    """The selected hosts, or all of the list."""
    if "all" in request.POST:
        return host_selection.of_filters(user, filters)
    ticked = request.POST.getlist("host")
    return list(dict.fromkeys(int(text) for text in ticked if text.isdecimal() and len(text) <= MAX_DIGITS))


def _ask(
    request: HttpRequest,
    act: str,
    filters: Filters,
    of_list: bool,
    found: Sequence[SelectedHost],
    form: Cordon | None,
    more: bool,
) -> HttpResponse:
    context = {
        "act": act,
        "filters": filters.query,
        "back": filters.address(),
        "of_list": of_list,
        "hosts": found,
        "form": form,
        "more": more,
        "most": host_selection.MOST,
    }
    return render(request, "hosts/bulk.html", context)


def _do(request: HttpRequest, act: str, found: Sequence[SelectedHost], form: Cordon | None) -> None:
    done, refused = 0, []
    for host in found:
        try:
            _one(act, host.row, form, person(request).username)
            done += 1
        except Refused as why:
            refused.append(f"{host.name}: {shown(why.message)}")
    if done:
        messages.success(request, _done(act, done))
    if refused:
        named = shown(list_text(refused, SHOWN_REFUSALS))
        messages.error(request, _("Not done for {number}: {hosts}").format(number=len(refused), hosts=named))


def _one(act: str, row: Host, form: Cordon | None, actor: str) -> None:
    now, typed = timezone.now(), form.cleaned_data if form else {}
    if act == CHECK:
        enrol_host.check_again(row, actor, now)
        return
    with transaction.atomic():
        if act == CORDON:
            service.cordon(row, typed["message"], actor, now)
        elif act == UNCORDON:
            service.uncordon(row, actor, now)
        else:
            until = None if typed["deadline"] is None else now + timedelta(seconds=typed["deadline"])
            service.drain(row, typed["message"], until, typed["force"], actor, now)


def _done(act: str, count: int) -> str:
    sentences = {
        CORDON: ngettext("{number} host takes no new jobs.", "{number} hosts take no new jobs.", count),
        DRAIN: ngettext("{number} host is being drained.", "{number} hosts are being drained.", count),
        UNCORDON: ngettext("{number} host takes jobs again.", "{number} hosts take jobs again.", count),
        CHECK: ngettext(
            "The check of {number} host has started.", "The checks of {number} hosts have started.", count
        ),
    }
    return sentences[act].format(number=count)
