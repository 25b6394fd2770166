"""Binding a location to projects. The caller has asked whether the person may do it. Each change is audited."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from agents.infra.refusals import Refused
from agents.infra.texts import said
from agents.models import Location
from jobs.models import LocationBinding, Project
from jobs.projects import audit, locations
from jobs.rules.list_text import list_text
from jobs.scheduling import pass_lock
from jobs.wake import announce, hints


def bind(name: str, projects: Sequence[str], actor: str, now: datetime) -> Location:
    """Let the location serve these projects and no others; all projects, if none is named."""
    with transaction.atomic():
        # A pass has read the bindings and places by them: it is over before they change.
        pass_lock.lock_pass()
        location = find(name, Location.objects.select_for_update())
        wanted = _projects_named(projects)
        before = _bound(location)
        LocationBinding.objects.filter(location=location).exclude(project__in=wanted).delete()
        there = set(LocationBinding.objects.filter(location=location).values_list("project", flat=True))
        LocationBinding.objects.bulk_create(
            LocationBinding(location=location, project=project)
            for project in wanted
            if project.pk not in there
        )
        after = _bound(location)
        if after != before:
            audit.record(actor, "location.bind", "location", name, before, after, now)
            announce.hints(["hosts"])
            hints.schedule()
    return location


def find(name: str, among: QuerySet[Location] | None = None) -> Location:
    """The location of this name. Raises Refused."""
    location = (Location.objects.all() if among is None else among).filter(name=name).first()
    if location is None:
        raise Refused(
            "location",
            said(
                "There is no location {location}. {there_are}",
                location=repr(name[:63]),
                there_are=_there_are(),
            ),
        )
    return location


def _bound(location: Location) -> list[str]:
    rows = LocationBinding.objects.filter(location=location).order_by("project__name")
    return list(rows.values_list("project__name", flat=True))


def _projects_named(asked: Sequence[str]) -> list[Project]:
    found = {project.name: project for project in Project.objects.filter(name__in=asked)}
    unknown = sorted(set(asked) - found.keys())
    if unknown:
        raise Refused(
            "projects",
            said("There is no project {projects}.", projects=list_text(unknown, locations.MAX_NAMED)),
        )
    return [found[name] for name in sorted(found)]


def _there_are() -> str:
    return said("There are: {names}.", names=list_text(locations.names(), locations.MAX_NAMED))
