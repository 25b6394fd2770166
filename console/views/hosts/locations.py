"""Locations: which hosts each has, which projects it serves, what its hosts share, and which images it uses."""

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
from agents.models import Location
from console.auth import access
from console.auth.person import person
from console.forms.locations import BindLocation
from console.presenters.hosts.locations import location_rows
from jobs.maintenance import location_bindings, location_images, location_storage
from jobs.models import Project


@require_safe
@login_required
def page(request: HttpRequest) -> HttpResponse:
    access.require(request.user, "see", Location)
    context = {
        "rows": location_rows(person(request)),
        "projects": access.visible(request.user, Project.objects.order_by("name")),
        "may_manage": access.can(request.user, "manage", Location),
    }
    return render(request, "hosts/locations.html", context)


@require_POST
@login_required
def share(request: HttpRequest, location: str) -> HttpResponse:
    row = access.get_or_404(request.user, "manage", Location.objects.all(), name=location)
    try:
        asked = location_storage.parse_lines(request.POST.get("storage", "")[:100_000])
        location_storage.share(row, asked, person(request).username, timezone.now())
    except Refused as refused:
        messages.error(request, shown(refused.message))
    else:
        messages.success(request, _("The shared storage of {name} is changed.").format(name=row.name))
    return redirect("locations")


@require_POST
@login_required
def alias(request: HttpRequest, location: str) -> HttpResponse:
    """Add an alias of an image, change what it stands for, or delete it."""
    row = access.get_or_404(request.user, "manage", Location.objects.all(), name=location)
    name, image = (request.POST.get(field, "").strip()[:2_000] for field in ("name", "image"))
    actor, now = person(request).username, timezone.now()
    try:
        if "delete" in request.POST:
            location_images.remove(row, name, actor, now)
        else:
            location_images.add(row, name, image, actor, now)
    except Refused as refused:
        messages.error(request, shown(refused.message))
    else:
        messages.success(request, _("The images of {name} are changed.").format(name=row.name))
    return redirect("locations")


@require_POST
@login_required
def bind(request: HttpRequest, location: str) -> HttpResponse:
    row = access.get_or_404(request.user, "manage", Location.objects.all(), name=location)
    form = BindLocation(request.POST)
    form.set_choices(Project.objects.order_by("name").values_list("name", flat=True))
    if not form.is_valid():
        messages.error(request, " ".join(str(error) for of in form.errors.values() for error in of))
        return redirect("locations")
    try:
        with transaction.atomic():
            location_bindings.bind(
                row.name, form.cleaned_data["projects"], person(request).username, timezone.now()
            )
    except Refused as refused:
        messages.error(request, shown(refused.message))
        return redirect("locations")
    served = ", ".join(form.cleaned_data["projects"])
    messages.success(
        request,
        _("Location {name} serves {projects} now.").format(
            name=row.name, projects=served or _("all projects")
        ),
    )
    return redirect("locations")
