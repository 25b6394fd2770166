"""What the requests of all forms that submit jobs share: who may send them, and what they begin with."""

from __future__ import annotations

import uuid
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from agents.infra.sentences import shown
from agents.infra.sql import SelectStatement
from console.auth import access
from console.auth.person import person
from console.forms.jobs import AnyDraft, JobDestination
from console.views.jobs.form_choices import FormChoices
from console.views.projects.switch import COOKIE
from jobs import services
from jobs.models import Job
from jobs.projects import locations
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.spec.parse import Violation
from jobs.scheduling import machine_types

# What a page with a form asks the database many times.
READS: dict[SelectStatement, dict[str, Any]] = {locations.NAMES: {}, locations.BINDINGS: {}}


def only_submitters(request: HttpRequest) -> None:
    """Refuse a person who may submit to no project."""
    access.require(request.user, "submit", Job)
    if not FormChoices.of(request).projects:
        raise PermissionDenied  # all projects of the person are archived


def chosen_project(request: HttpRequest) -> str:
    """The project that the address names, or the one that the person works in."""
    return request.GET.get("project", "") or request.COOKIES.get(COOKIE, "")


def new_destination(project: str = "") -> JobDestination:
    """Return a destination with a new request id. Sending a form twice with one id makes one job."""
    return JobDestination(project, "", f"form-{uuid.uuid4()}")


def pressed(request: HttpRequest) -> str:
    """What the person pressed, or had pressed before the page asked something."""
    return request.POST.get("action") or request.POST.get("then", "")


def problems_of(request: HttpRequest, draft: AnyDraft, copied: int | None = None) -> tuple[Violation, ...]:
    """Why a submit would refuse the job of the form. `copied`: the job of which it brings the same bytes."""
    destination = draft.destination
    project = access.project_or_404(request.user, "submit", destination.project)
    try:
        locations.check_serves(project, destination.location)
        job, _types = machine_types.read(draft.document(), destination.location)
        services.check_priority(job, project, access.can(request.user, "prioritize", project))
        services.check_brought(job, project, person(request), destination.location, copied)
    except (InvalidDocument, services.Refused) as refused:
        return violations_of(refused)
    return ()


def violations_of(refused: InvalidDocument | services.Refused) -> tuple[Violation, ...]:
    if isinstance(refused, services.Refused):
        return (Violation(refused.field, shown(refused.message)),)
    return tuple(refused.violations)
