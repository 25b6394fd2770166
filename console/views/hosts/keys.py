"""The keys of many hosts: what an admin pastes is shown beside what the hosts show, and the equal ones are accepted."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST, require_safe

from agents.hosts import pasted_keys
from agents.infra.refusals import Refused
from agents.infra.sentences import shown
from agents.models import Host
from console.auth import access
from console.auth.person import person
from console.forms.hosts import PasteKeys
from console.presenters.hosts import offered_keys
from console.views.confirmation import asked_again
from jobs.maintenance import enrol_host
from jobs.rules.list_text import list_text

SHOWN_REFUSALS = 3


@require_safe
@login_required
def keys(request: HttpRequest) -> HttpResponse:
    access.require(request.user, "manage", Host)
    return _page(request, PasteKeys())


@require_POST
@login_required
def compare(request: HttpRequest) -> HttpResponse:
    access.require(request.user, "manage", Host)
    form = PasteKeys(request.POST)
    found = _compared(request, form)
    if found is None:
        return _page(request, form)
    return render(request, "hosts/compare_keys.html", {"page": found, "form": form})


@require_POST
@login_required
def accept(request: HttpRequest) -> HttpResponse:
    """Accept the ticked keys that are equal to the text now: it is compared again."""
    access.require(request.user, "manage", Host)
    form = PasteKeys(request.POST)
    found = _compared(request, form)
    if found is None:
        return _page(request, form)
    chosen = offered_keys.chosen(found, request.POST.getlist("host"))
    if not chosen:
        messages.error(request, _("Nothing was accepted: none of the selected keys is equal to the text."))
        return render(request, "hosts/compare_keys.html", {"page": found, "form": form})
    act = ngettext("accept the key of {number} host", "accept the keys of {number} hosts", len(chosen))
    if page := asked_again(request, act.format(number=len(chosen))):
        return page
    accepted, refused = enrol_host.accept_host_keys(chosen, person(request).username, timezone.now())
    if accepted:
        done = ngettext(
            "The key of {number} host is accepted. Its check has started.",
            "The keys of {number} hosts are accepted. Their checks have started.",
            len(accepted),
        )
        messages.success(request, done.format(number=len(accepted)))
    if refused:
        named = list_text([f"{host.name}: {shown(why)}" for host, why in refused], SHOWN_REFUSALS)
        messages.error(
            request, _("Not done for {number}: {hosts}").format(number=len(refused), hosts=shown(named))
        )
    return redirect("hosts")


def _compared(request: HttpRequest, form: PasteKeys) -> offered_keys.KeyPage | None:
    if not form.is_valid():
        return None
    try:
        pasted = pasted_keys.parse(form.cleaned_data["keys"])
    except Refused as refused:
        form.add_error("keys", shown(refused.message))
        return None
    return offered_keys.compared(offered_keys.machines_of(person(request)), pasted)


def _page(request: HttpRequest, form: PasteKeys) -> HttpResponse:
    machines = offered_keys.machines_of(person(request))
    context = {"form": form, "keys": offered_keys.waiting(machines), "silent": offered_keys.silent(machines)}
    return render(request, "hosts/keys.html", context)
