"""The map of all GPUs: what each one does now, and which job holds it, as far as the person may see that job."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import Count, Exists, FilteredRelation, Max, OuterRef, Q, QuerySet
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_noop

from agents.models import LOAD_IS_FRESH, Gpu, GpuState, Host, HostLoad, HostStatus, Location
from console.auth import access
from console.presenters import badges
from console.presenters.badges import Badge
from console.presenters.hosts.gpu_cells import (
    CLOSED,
    FREE,
    HELD,
    PROVING,
    STRANGERS,
    HostGpus,
    rows,
    state_of,
)
from console.presenters.hosts.gpu_last_day import LastDay, last_day
from jobs.models import GpuClaim, Run
from jobs.projects import claim_holders
from jobs.rules.lifecycle.states import RunPhase

LEGEND = (HELD, FREE, badges.GPU_CLEANING, PROVING, badges.GPU_FORGOTTEN, STRANGERS, CLOSED)
SIZE = 25  # hosts of a page
CHARTS_EVERY_S = 600
# Loads come every 30 s from each host, so with many hosts every moment: a page that is looked at follows so often.
LOADS_EVERY_S = 10
SHOWN: Mapping[str, str] = {
    "held": gettext_noop("with GPUs that jobs hold"),
    "free": gettext_noop("with GPUs that jobs can have"),
    "trouble": gettext_noop("that are not well, or have GPUs that are not"),
    "closed": gettext_noop("that take no new jobs"),
}
TABLE = "table"


@dataclass(frozen=True, slots=True)
class Filters:
    """What the address of the page asks for. An unknown value counts as no filter. `after`: the cursor of the page."""

    text: str = ""
    location: str = ""
    type: str = ""
    show: str = ""
    view: str = ""
    after: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filters:
        plain = {name: query.get(name, "").replace("\0", "")[:63] for name in cls.__dataclass_fields__}
        show, view = plain.pop("show"), plain.pop("view")
        return cls(**plain, show=show if show in SHOWN else "", view=TABLE if view == TABLE else "")

    @property
    def any(self) -> bool:
        return bool(self.text or self.location or self.type or self.show)

    def address(self, **changes: str) -> str:
        """The address of the page with these filters, some of them changed."""
        changed = replace(self, **{"after": "", **changes})
        asked = {name: getattr(changed, name) for name in self.__dataclass_fields__}
        query = urlencode({name: value for name, value in asked.items() if value})
        return f"{reverse('gpus')}?{query}" if query else reverse("gpus")

    @property
    def as_table(self) -> str:
        return self.address(view=TABLE, after=self.after)

    @property
    def as_map(self) -> str:
        return self.address(view="", after=self.after)

    @property
    def query(self) -> str:
        return self.address(after=self.after).partition("?")[2]


@dataclass(frozen=True, slots=True)
class GpuMap:
    """One page of hosts with their GPUs. `total`, `tally` and `day` are of all hosts with this name, location and type,
    `hosts` only of those that `filters.show` asks for. `next`, `first`: addresses.
    """

    filters: Filters
    hosts: tuple[HostGpus, ...]
    total: int
    tally: tuple[tuple[Badge, int], ...]
    types: tuple[str, ...]
    locations: tuple[str, ...]
    shown: tuple[tuple[str, str], ...]
    day: LastDay | None
    may_manage: bool
    next: str
    first: str

    @property
    def type(self) -> str:
        return self.filters.type

    @property
    def has_gpus(self) -> bool:
        return bool(self.types or self.total)


def gpu_map(user: User, query: Mapping[str, str]) -> GpuMap:
    """Return a page of the map. The number of queries does not depend on the GPUs."""
    now = timezone.now()
    filters = Filters.of(query)
    hosts = _hosts(user, filters)
    forgotten = claim_holders.gpus_of_strays()
    tallies = _tallies(hosts, forgotten)
    if filters.type not in tallies:
        filters = replace(filters, type="")
    kind = filters.type
    counts = sum((tally for type_, tally in tallies.items() if kind in ("", type_)), Counter())
    found = _filtered(hosts, filters).select_related("location", "maintenance").defer("checklist", "facts")
    page = list(found[: SIZE + 1])
    total, more = counts.total(), len(page) > SIZE
    locations = access.visible(user, Location.objects.order_by("name"))
    return GpuMap(
        filters=filters,
        hosts=tuple(rows(user, page[:SIZE], kind, forgotten, now)),
        total=total,
        tally=tuple((state, counts[state]) for state in LEGEND if counts[state]),
        types=tuple(sorted(type_ for type_ in tallies if type_)),
        locations=tuple(locations.values_list("name", flat=True)),
        shown=tuple((value, gettext(words)) for value, words in SHOWN.items()),
        day=_last_day(user, hosts, filters, total, now),
        may_manage=access.can(user, "manage", Host),
        next=filters.address(after=page[SIZE - 1].name) if more else "",
        first=filters.address() if filters.after else "",
    )


def _last_day(
    user: User, hosts: QuerySet[Host], filters: Filters, total: int, now: datetime
) -> LastDay | None:
    same = access.hosts_key(user), filters.text, filters.location
    return last_day(hosts.order_by().values_list("pk", flat=True), filters.type, total, now, same)


def _hosts(user: User, filters: Filters) -> QuerySet[Host]:
    hosts = access.visible(user, Host.machines.order_by("name"))
    if filters.text:
        hosts = hosts.filter(name__icontains=filters.text)
    return hosts.filter(location__name=filters.location) if filters.location else hosts


def stamp(user: User) -> list[object]:
    """Return what changes whenever a page of the map would change, without what changes at each contact of a host.

    New loads change it every ten seconds. A load that is not fresh any more changes it too.
    """
    now = timezone.now()
    fresh = HostLoad.objects.filter(at__gt=now - LOAD_IS_FRESH).aggregate(Count("pk"), Max("at"))
    newest = fresh["at__max"]
    hosts = access.visible(user, Host.machines.all())
    cordoned = Count("pk", filter=Q(maintenance__cordoned=True))
    gpus = Gpu.objects.filter(present=True).order_by()
    open_runs = Run.objects.filter(released_at=None)
    return [
        hosts.aggregate(Count("pk"), Max("status_since"), cordoned=cordoned),
        sorted(gpus.values_list("state").annotate(Count("pk"), Max("pk"))),
        GpuClaim.objects.filter(released_at=None).aggregate(Count("pk"), Max("pk")),
        open_runs.aggregate(Count("pk"), ended=Count("pk", filter=Q(phase=RunPhase.ENDED))),
        sorted(claim_holders.gpus_of_strays()),
        (fresh["pk__count"], newest and int(newest.timestamp()) // LOADS_EVERY_S),
        # The charts of the last day.
        int(now.timestamp()) // CHARTS_EVERY_S,
    ]


def hosts_of(user: User, filters: Filters, most: int) -> list[int]:
    """The hosts of all pages of the map with these filters, at most so many."""
    found = _filtered(_hosts(user, filters), replace(filters, after=""))
    return list(found.values_list("pk", flat=True)[:most])


def _filtered(hosts: QuerySet[Host], filters: Filters) -> QuerySet[Host]:
    there = Gpu.objects.filter(present=True, host=OuterRef("pk"))
    if filters.type:
        there = there.filter(accelerator_type=filters.type)
    rows = hosts.filter(Exists(there), name__gt=filters.after)
    held = Exists(GpuClaim.objects.filter(gpu=OuterRef("pk"), released_at=None))
    takes_jobs = Q(status=HostStatus.UP) & ~Q(maintenance__cordoned=True)
    if filters.show == "held":
        rows = rows.filter(Exists(there.filter(held)))
    elif filters.show == "free":
        rows = rows.filter(takes_jobs, Exists(there.filter(~held, state=GpuState.OK)))
    elif filters.show == "trouble":
        rows = rows.filter(~Q(status=HostStatus.UP) | Exists(there.exclude(state=GpuState.OK)))
    elif filters.show == "closed":
        rows = rows.filter(~takes_jobs)
    return rows


def _tallies(visible: QuerySet[Host], forgotten: Collection[str]) -> dict[str, Counter[Badge]]:
    """Return how many GPUs of each type are in which state, for all hosts: the database counts them.

    Of the runs that hold GPUs only those that have ended are looked up, which are few. Of a join of all claims with
    their runs PostgreSQL expects too few rows, and would look up each run by itself.
    """
    counts: defaultdict[str, Counter[Badge]] = defaultdict(Counter)
    there = Gpu.objects.filter(present=True, host__in=visible.order_by()).order_by()
    known = there.exclude(uuid__in=forgotten) if forgotten else there
    held = FilteredRelation("claims", condition=Q(claims__released_at=None))
    columns = ("accelerator_type", "state", "host__status", "host__maintenance__cordoned")
    rows = known.annotate(claim=held, is_held=Q(claim__isnull=False)).values_list(*columns, "is_held")
    for kind, state, status, cordoned, is_held, count in rows.annotate(Count("pk")):
        phase = RunPhase.RUNNING if is_held else None
        counts[kind][state_of(state, phase, status == HostStatus.UP and not cordoned)] += count
    ended = Run.objects.filter(released_at=None, phase=RunPhase.ENDED).order_by().values("pk")
    cleaning = known.filter(claims__released_at=None, claims__run__in=ended)
    for kind, state, count in cleaning.values_list("accelerator_type", "state").annotate(Count("pk")):
        counts[kind][state_of(state, RunPhase.RUNNING, True)] -= count
        counts[kind][state_of(state, RunPhase.ENDED, True)] += count
    if forgotten:
        lost = there.filter(uuid__in=forgotten).values_list("accelerator_type")
        for kind, count in lost.annotate(Count("pk")):
            counts[kind][badges.GPU_FORGOTTEN] += count
    return counts
