"""What the requests of all forms that submit jobs share: who may send them, and what they begin with."""

from __future__ import annotations

import uuid
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from agents.infra.sql import SelectStatement
from console.auth import access
from console.forms.jobs import JobDestination
from console.views.jobs.form_choices import FormChoices
from console.views.projects.switch import COOKIE
from jobs.models import Job
from jobs.projects import locations

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
