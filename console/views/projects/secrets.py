"""Pages of stored secrets, those of a project and a person's own: the names, and a form that can only write."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from agents.infra.refusals import Refused
from agents.infra.sentences import shown
from console.auth import access
from console.auth.person import person
from console.forms.secrets import NewSecret
from jobs.models import Project
from jobs.secrets import image_registries, store
from jobs.secrets.store import Owner


@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
@login_required
def secrets(request: HttpRequest, project: str = "") -> HttpResponse:
    """Show the names, and set a secret."""
    owner = _owner(request, "submit" if request.method == "GET" else "manage_secrets", project)
    form = NewSecret(request.POST or None)
    if request.method == "POST" and form.is_valid():
        name, value = form.cleaned_data["name"], form.cleaned_data["value"]
        try:
            with transaction.atomic():
                new = store.put(owner, name, value, person(request).username, timezone.now())[1]
        except Refused as refused:
            form.add_error(refused.field, shown(refused.message))
        else:
            text = (
                _("{name} is set. Its value is not shown again.")
                if new
                else _("{name} is changed. Its value is not shown again.")
            )
            messages.success(request, text.format(name=name))
            return _back(owner)
    context = {
        "form": form,
        "secrets": store.of(owner),
        "project": owner if isinstance(owner, Project) else None,
        "registries": image_registries.of(owner) if isinstance(owner, Project) else (),
        "may_set": not isinstance(owner, Project) or access.can(request.user, "manage_secrets", owner),
    }
    return render(request, "projects/secrets.html", context)


@require_POST
@login_required
def remove(request: HttpRequest, project: str = "") -> HttpResponse:
    owner = _owner(request, "manage_secrets", project)
    name = request.POST.get("name", "")
    with transaction.atomic():
        removed = store.remove(owner, name, person(request).username, timezone.now())
    if removed:
        text = _("{name} is deleted. Jobs that were submitted with it keep what they got.")
        messages.success(request, text.format(name=name))
    return _back(owner)


def _owner(request: HttpRequest, verb: access.Verb, project: str) -> Owner:
    """Return the project, if the person may do this there, or the person."""
    return access.project_or_404(request.user, verb, project) if project else person(request)


def _back(owner: Owner) -> HttpResponse:
    return redirect("project-secrets", owner.name) if isinstance(owner, Project) else redirect("own-secrets")
