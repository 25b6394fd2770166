"""The forms of credentials of image registries, on the pages of a project's secrets and of locations."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST

from agents.infra.refusals import Refused
from agents.infra.sentences import shown
from agents.models import Location
from console.auth import access
from console.auth.person import person
from jobs.secrets import image_registries
from jobs.secrets.image_registries import Owner


@require_POST
@sensitive_post_parameters()
@login_required
def of_project(request: HttpRequest, project: str) -> HttpResponse:
    owner = access.project_or_404(request.user, "manage_secrets", project)
    _change(request, owner)
    return redirect("project-secrets", owner.name)


@require_POST
@sensitive_post_parameters()
@login_required
def of_location(request: HttpRequest, location: str) -> HttpResponse:
    _change(request, access.get_or_404(request.user, "manage", Location.objects.all(), name=location))
    return redirect("locations")


def _change(request: HttpRequest, owner: Owner) -> None:
    """Set the credential of a registry, or delete it."""
    registry, username = (request.POST.get(field, "").strip()[:2_000] for field in ("registry", "username"))
    actor, now = person(request).username, timezone.now()
    try:
        if "delete" in request.POST:
            image_registries.remove(owner, registry, actor, now)
            text = _("The credential of {registry} is deleted.")
        else:
            image_registries.put(owner, registry, username, request.POST.get("password", ""), actor, now)
            text = _("The credential of {registry} is set. It is not shown again.")
    except Refused as refused:
        messages.error(request, shown(refused.message))
    else:
        messages.success(request, text.format(registry=registry))
