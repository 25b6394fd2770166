"""The locations that a person may see: their hosts, and which projects each serves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import Count, Q

from agents.models import Location
from console.auth import access
from jobs.maintenance.location_storage import EVERY
from jobs.models import ImageAlias, LocationBinding, LocationStorage, Project, RegistryCredential


@dataclass(frozen=True, slots=True)
class LocationRow:
    """`projects`: those of the projects that it is bound to which the person may see. Without `bound` it serves all."""

    name: str
    title: str
    hosts: int
    bound: bool
    projects: tuple[str, ...]
    storage: tuple[tuple[str, str], ...]
    """(bucket, directory that its hosts share); "*" for all other buckets."""
    images: tuple[tuple[str, str], ...]
    """(alias, the image or "host" that it stands for)."""
    registries: tuple[str, ...]
    """The image registries for which hosts have a credential here; for admins."""


def location_rows(user: User, only: str | None = None) -> list[LocationRow]:
    """Return the locations, or `only` one. Makes six queries for any number of locations."""
    rows = access.visible(user, Location.objects.all())
    if only is not None:
        rows = rows.filter(name=only)
    hosts = Count("hosts", filter=Q(hosts__retired_at=None))
    mine = set(access.visible(user, Project.objects.order_by("name")).values_list("name", flat=True))
    bound: dict[int, list[str]] = defaultdict(list)
    bindings = LocationBinding.objects.order_by("project__name")
    for location, project in bindings.values_list("location", "project__name"):
        bound[location].append(project)
    shared: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for location, bucket, directory in LocationStorage.objects.order_by("bucket").values_list(
        "location", "bucket", "directory"
    ):
        shared[location].append((bucket or EVERY, directory))
    images: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for location, name, image in ImageAlias.objects.values_list("location", "name", "image"):
        images[location].append((name, image))
    registries = _registries()
    return [
        _row(
            row,
            row.count,
            bound.get(row.pk),
            mine,
            tuple(shared[row.pk]),
            tuple(images[row.pk]),
            tuple(registries[row.pk]),
        )
        for row in rows.annotate(count=hosts)
    ]


def _registries() -> dict[int, list[str]]:
    found: dict[int, list[str]] = defaultdict(list)
    rows = RegistryCredential.objects.exclude(location=None).order_by("registry")
    for location, registry in rows.values_list("location", "registry"):
        found[location or 0].append(registry)
    return found


def _row(
    row: Location,
    hosts: int,
    bound: Iterable[str] | None,
    mine: set[str],
    storage: tuple[tuple[str, str], ...],
    images: tuple[tuple[str, str], ...],
    registries: tuple[str, ...],
) -> LocationRow:
    projects = tuple(name for name in bound or () if name in mine)
    return LocationRow(row.name, row.title, hosts, bound is not None, projects, storage, images, registries)
