"""Which projects a location serves: asked at submit and at each placement.

A location that is bound to projects serves these and no others; a location that is bound to none serves all. A change
(jobs/maintenance/location_bindings.py) holds for every job that is not placed yet. A job that has a place keeps it
until its attempt is over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agents.infra.refusals import Refused
from agents.infra.sql import SelectStatement
from agents.infra.texts import join, said
from agents.models import Location
from jobs.models import LocationBinding, Project
from jobs.models.first_rows import DEFAULT
from jobs.rules.list_text import list_text

MAX_NAMED = 8

BINDINGS = SelectStatement(
    lambda: LocationBinding.objects.order_by("pk").values_list("location__name", "project")
)
NAMES = SelectStatement(lambda: Location.objects.order_by("name").values_list("name"))


@dataclass(frozen=True, slots=True)
class Bindings:
    """`projects`: by the name of each bound location, the ids of the projects that it serves."""

    projects: Mapping[str, frozenset[int]] = field(default_factory=dict)

    def serves(self, location: str, project: int) -> bool:
        """`location`: the name of one that exists (`resolved`)."""
        bound = self.projects.get(location)
        return bound is None or project in bound

    def serves_any(self, location: str, projects: Iterable[int]) -> bool:
        bound = self.projects.get(location)
        return bound is None or not bound.isdisjoint(projects)


def resolved(named: str, locations: Iterable[str]) -> str:
    """The location of this name, or the default location if there is none: Google's SDK accepts only Google's region
    names, so clients name regions that were never defined here."""
    return named if named in locations else DEFAULT


def names() -> list[str]:
    """The names of the locations that exist."""
    return [name for (name,) in NAMES()]


def read_bindings() -> Bindings:
    found: dict[str, set[int]] = defaultdict(set)
    for location, project in BINDINGS():
        found[location].add(project)
    return Bindings({location: frozenset(projects) for location, projects in found.items()})


def serving(project: Project) -> list[str]:
    """The locations that take the jobs of this project, by name."""
    bindings = read_bindings()
    return [name for name in names() if bindings.serves(name, project.pk)]


def check_serves(project: Project, named: str) -> None:
    """Raises Refused when jobs of the project cannot run in the location `named`."""
    bindings, existing = read_bindings(), names()
    location = resolved(named, existing)
    if bindings.serves(location, project.pk):
        return
    others = [name for name in existing if bindings.serves(name, project.pk)]
    if others:
        cure = said(
            "Choose {locations}; or an admin can bind it to the project.",
            locations=list_text(others, MAX_NAMED),
        )
    else:
        cure = said("An admin can bind it to the project.")
    raise Refused("location", join(" ", [_closed(location, project.name), cure]))


def waits_text(location: str, project: str) -> str:
    """Why a job that was accepted before the binding changed waits now."""
    cure = said("An admin can bind it to the project; or submit the job to another location.")
    return join(" ", [_closed(location, project), cure])


def _closed(location: str, project: str) -> str:
    return said(
        "Location {location} serves other projects, and not {project}.", location=location, project=project
    )
