"""The hosts that an admin has selected in a list or in the map of GPUs, with what to know before an act."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import Count
from django.db.models.functions import Coalesce
from django.urls import reverse

from agents.models import Host
from console.auth import access
from console.presenters.badges import Badge
from console.presenters.hosts import gpu_map, host_filters
from console.presenters.hosts.gpu_cells import badges_of
from jobs.models import Run

Filters = gpu_map.Filters | host_filters.Filters
# At once: each is a transaction of its own, and the answer waits for all of them.
MOST = 200


@dataclass(frozen=True, slots=True)
class SelectedHost:
    """`row`: the host as the services want it. `runs`: how many runs it has."""

    row: Host
    id: int
    name: str
    url: str
    badges: tuple[Badge, ...]
    runs: int


def select(user: User, ids: Collection[int]) -> list[SelectedHost]:
    """Return those of these hosts that exist, by name, for a person who may manage hosts. Makes two queries."""
    rows = access.visible(user, Host.machines.filter(pk__in=ids)).select_related("maintenance", "location")
    hosts = list(rows.order_by("name"))
    here = Run.objects.filter(released_at=None).annotate(machine=Coalesce("host__machine", "host"))
    counted = here.filter(machine__in=[host.pk for host in hosts]).order_by().values_list("machine")
    runs = dict(counted.annotate(Count("pk")))
    return [
        SelectedHost(
            host,
            host.pk,
            host.name,
            reverse("host", args=[host.pk]),
            tuple(badges_of(host)),
            runs.get(host.pk, 0),
        )
        for host in hosts
    ]


def filters_of(of_list: bool, query: Mapping[str, str]) -> Filters:
    """The filters of the list of hosts, or of the map of GPUs, where the hosts were selected."""
    return host_filters.Filters.of(query) if of_list else gpu_map.Filters.of(query)


def of_filters(user: User, filters: Filters) -> Sequence[int]:
    """The hosts of a whole list, whatever page of it is shown, and one more than can be selected at once."""
    if isinstance(filters, host_filters.Filters):
        found = host_filters.found(user, filters)
        return list(found.values_list("pk", flat=True)[: MOST + 1])
    return gpu_map.hosts_of(user, filters, MOST + 1)
