"""Machine types: named amounts of resources that jobs request, and the number of hosts that each fits on."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from agents.hosts import adding
from agents.infra.refusals import Refused
from agents.infra.sentences import shown
from agents.models import Location
from console.auth import access
from console.auth.person import person
from console.forms.machine_types import DefineType
from console.presenters.new_job import preview
from jobs.models import MachineType
from jobs.scheduling import machine_types


@require_http_methods(["GET", "POST"])
@login_required
def machines(request: HttpRequest) -> HttpResponse:
    access.require(request.user, "see", MachineType)
    form = DefineType(request.POST or None)
    if request.method == "POST":
        _only_managers(request)
        if form.is_valid() and _define(request, form):
            return redirect("machines")
    places = access.visible(request.user, Location.objects.all())
    names = [*places.values_list("name", flat=True)]
    location = _chosen(request.GET.get("location", ""), names)
    offers = preview.machine_offers(location, person(request)) if location in names else []
    context = {
        "form": form,
        "offers": [
            (True, [one for one in offers if one.ever]),
            (False, [one for one in offers if not one.ever]),
        ],
        "own": access.visible(request.user, MachineType.objects.select_related("location")),
        "location": location,
        "locations": names,
        "gpus": preview.gpu_offers(person(request)),
        "may_manage": access.can(request.user, "manage", MachineType),
    }
    return render(request, "machines/list.html", context)


def _chosen(asked: str, names: list[str]) -> str:
    """Return the location to show: the one that was asked for, the default, or any other that the person may see."""
    return next((name for name in (asked, adding.DEFAULT_LOCATION, *names) if name in names), "")


@require_POST
@login_required
def remove(request: HttpRequest, type_id: int) -> HttpResponse:
    _only_managers(request)
    row = MachineType.objects.filter(pk=type_id).first()
    if row is None:
        raise Http404
    machine_types.remove(row, person(request).username, timezone.now())
    messages.success(
        request,
        _("Machine type {name} is removed. Jobs that requested it keep their resources.").format(
            name=row.name
        ),
    )
    return redirect("machines")


def _define(request: HttpRequest, form: DefineType) -> bool:
    typed = form.cleaned_data
    try:
        row = machine_types.define(
            **{**typed, "accelerator_count": typed["accelerator_count"] or 0},
            actor=person(request).username,
            now=timezone.now(),
        )
    except Refused as refused:
        form.add_error(refused.field if refused.field in form.fields else None, shown(refused.message))
        return False
    messages.success(request, _("Jobs can request machine type {name} now.").format(name=row.name))
    return True


def _only_managers(request: HttpRequest) -> None:
    access.require(request.user, "manage", MachineType)
