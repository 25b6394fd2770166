"""The page of the occupancy: which GPUs were held over a day, a week or a month, and by whom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import Count, Exists, OuterRef, QuerySet
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_noop

from agents.models import Gpu, Host, Location
from console.auth import access
from console.presenters import csv_cells
from console.presenters.hosts import occupancy_lanes as lanes
from console.presenters.hosts.occupancy_lanes import Held, Lane
from console.presenters.hosts.occupancy_sums import Place, sum_lanes
from console.presenters.hosts.occupancy_window import DAY, MONTH, WEEK, Window
from jobs.models import Project

SIZE = 25
TABLE = "table"
SPANS = ((DAY, gettext_noop("Day")), (WEEK, gettext_noop("Week")), (MONTH, gettext_noop("Month")))
# Of one host, so many lines of its table.
MOST_ROWS = 300
# Hosts whose runs are read at once for a download.
AT_ONCE = 50
_GPUS = Gpu.objects.filter(host=OuterRef("pk"), present=True)
HEADER = ("host", "gpus", "job", "name", "project", "user", "held_from", "held_until")


@dataclass(frozen=True, slots=True)
class Filters:
    span: str = ""
    at: str = ""
    location: str = ""
    host: str = ""
    project: str = ""
    view: str = ""
    after: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filters:
        return cls(**{name: query.get(name, "").replace("\0", "")[:63] for name in cls.__dataclass_fields__})

    @property
    def any(self) -> bool:
        return bool(self.location or self.host or self.project)

    def address(self, name: str = "occupancy", **changes: str) -> str:
        changed = replace(self, **{"after": "", **changes})
        asked = {each: getattr(changed, each) for each in self.__dataclass_fields__}
        query = urlencode({each: value for each, value in asked.items() if value})
        return f"{reverse(name)}?{query}" if query else reverse(name)


@dataclass(frozen=True, slots=True)
class Occupancy:
    """`host`: the name of the host whose GPUs are shown; empty where each host is a lane. `rows` are for its table.
    `sums`: the lanes of locations, on the first page of hosts."""

    filters: Filters
    window: Window
    host: str
    sums: tuple[Lane, ...]
    lanes: tuple[Lane, ...]
    rows: tuple[Held, ...]
    more_rows: int
    spans: tuple[tuple[str, str, str], ...]
    locations: tuple[str, ...]
    projects: tuple[str, ...]
    earlier: str
    later: str
    latest: str
    as_table: str
    as_lanes: str
    csv: str
    all_hosts: str
    first: str
    next: str


def occupancy(user: User, query: Mapping[str, str]) -> Occupancy:
    """The number of queries does not depend on hosts, GPUs or jobs."""
    filters = Filters.of(query)
    window = Window.of(filters.span, filters.at, timezone.now())
    names = dict(access.visible(user, Project.objects.order_by("name")).values_list("name", "pk"))
    filters = replace(
        filters, span=window.span, at=window.first, project=filters.project * (filters.project in names)
    )
    hosts = _hosts(user, filters).select_related("maintenance").defer("checklist", "facts")
    one = _one(hosts, filters)
    page = [one] if one else list(hosts.filter(name__gt=filters.after)[: SIZE + 1])
    shown = page[:SIZE]
    held = _held(shown, window, names, filters.project)
    rows = sorted(held, key=lambda each: each.since, reverse=True) if one else []
    locations = access.visible(user, Location.objects.order_by("name")).values_list("pk", "name")
    return Occupancy(
        filters=filters,
        window=window,
        host=one.name if one else "",
        sums=_sums(locations, window, filters),
        lanes=_gpu_lanes(one, held, window) if one else _host_lanes(shown, held, window, filters),
        rows=tuple(rows[:MOST_ROWS]),
        more_rows=len(rows[MOST_ROWS:]),
        spans=tuple((span, gettext(words), filters.address(span=span)) for span, words in SPANS),
        locations=tuple(name for _, name in locations),
        projects=tuple(names),
        earlier=filters.address(at=window.earlier, after=filters.after),
        later=filters.address(at=window.later, after=filters.after) if window.later else "",
        latest=filters.address(at="", after=filters.after) if window.first else "",
        as_table=filters.address(view=TABLE, after=filters.after),
        as_lanes=filters.address(view="", after=filters.after),
        csv=filters.address("occupancy-csv"),
        all_hosts=filters.address(host="") if one else "",
        first=filters.address() if filters.after else "",
        next=filters.address(after=shown[-1].name) if len(page) > SIZE else "",
    )


def _hosts(user: User, filters: Filters) -> QuerySet[Host]:
    """With GPUs. A host that is asked for by a part of its name is found as well."""
    hosts = access.visible(user, Host.machines.filter(Exists(_GPUS)).order_by("name"))
    if filters.location:
        hosts = hosts.filter(location__name=filters.location)
    return hosts.filter(name__icontains=filters.host) if filters.host else hosts


def _one(hosts: QuerySet[Host], filters: Filters) -> Host | None:
    """The host that is asked for by its whole name: it is shown alone."""
    return hosts.filter(name=filters.host).first() if filters.host else None


def _sums(locations: Iterable[tuple[int, str]], window: Window, filters: Filters) -> tuple[Lane, ...]:
    """The sums of locations are of all their hosts and projects, so they are left out where others are asked for."""
    if filters.host or filters.project or filters.after:
        return ()
    places = {
        pk: Place(name, filters.address(location=name))
        for pk, name in locations
        if filters.location in ("", name)
    }
    return sum_lanes(places, window, None if filters.location else Place(gettext("All hosts"), ""))


def _held(hosts: list[Host], window: Window, projects: Mapping[str, int], project: str) -> list[Held]:
    # Also logins that were taken out of service since: what they held was held.
    logins = Host.every.filter(machine__in=hosts).values_list("pk", "machine")
    machines = {login: machine for login, machine in logins if machine is not None}
    rows = lanes.runs_of(machines, [host.pk for host in hosts], window, projects.get(project))
    found = lanes.held_on(rows, machines, frozenset(projects.values()))
    return [each for each in found if each.uuids]


def _host_lanes(hosts: list[Host], held: list[Held], window: Window, filters: Filters) -> tuple[Lane, ...]:
    counts = Gpu.objects.filter(host__in=hosts, present=True).order_by().values_list("host")
    urls = {host.pk: filters.address(host=host.name) for host in hosts}
    return lanes.host_lanes(hosts, dict(counts.annotate(Count("pk"))), held, window, urls)


def _gpu_lanes(host: Host, held: list[Held], window: Window) -> tuple[Lane, ...]:
    gpus = list(Gpu.objects.filter(host=host, present=True).order_by("index"))
    return lanes.gpu_lanes(host, gpus, held, window)


def csv_parts(user: User, query: Mapping[str, str]) -> Iterator[str]:
    """All runs of the hosts that the page shows as CSV, some hosts at a time."""
    filters = Filters.of(query)
    window = Window.of(filters.span, filters.at, timezone.now())
    names = dict(access.visible(user, Project.objects.order_by()).values_list("name", "pk"))
    found = _hosts(user, filters).defer("checklist", "facts")
    one = _one(found, filters)
    hosts = [one] if one else list(found)
    yield csv_cells.lines([HEADER])
    for first in range(0, len(hosts), AT_ONCE):
        some = hosts[first : first + AT_ONCE]
        held = _held(some, window, names, filters.project if filters.project in names else "")
        of = {host.pk: host.name for host in some}
        yield csv_cells.lines(
            (
                of[each.host],
                len(each.uuids),
                each.job if each.name else "",
                csv_cells.plain(each.name),
                each.project,
                csv_cells.plain(each.owner),
                _moment(each.since),
                _moment(each.until),
            )
            for each in sorted(held, key=lambda each: (of[each.host], each.since))
        )


def _moment(at: datetime | None) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}" if at else ""
