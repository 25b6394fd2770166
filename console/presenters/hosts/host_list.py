"""The list of hosts, filtered and paged in SQL, as frozen values for its page."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import Count, Max, Q, QuerySet
from django.urls import reverse
from django.utils.translation import gettext as _

from agents.infra.sentences import shown
from agents.models import Gpu, GpuState, Host, HostStatus, Location
from console.auth import access
from console.presenters import badges
from console.presenters.badges import Badge
from console.presenters.hosts.host_filters import (
    OPEN_CLAIMS,
    SORTED,
    Filters,
    count_held,
    count_runs,
    found,
    page_of,
    runs_on,
)
from console.presenters.hosts.job_ids import MAYBE_JOB, JobIdFilter
from console.presenters.sort_links import SortLink, next_order
from jobs.lifecycle.host_maintenance import maintenance_of
from jobs.models import GpuClaim, Run

SIZE = 50
FEW = 10


@dataclass(frozen=True, slots=True)
class HostRow:
    id: int
    url: str
    name: str
    badge: Badge
    since: datetime
    cordoned: bool
    closed: str
    cordon_message: str
    location: str
    address: str
    cpus: int
    memory_mb: int
    gpus_used: int
    gpus: int
    gpus_out: int
    models: str
    free_disk_mb: int | None
    runs: int
    error: str


@dataclass(frozen=True, slots=True)
class HostList:
    """One page of the list. The sums are of all hosts that the filters match. `next` and `first` are addresses.
    `keys`: how many hosts show a key that nobody has accepted. `names_jobs`: the error of a host names a job, so people
    who see the same hosts may read different texts.
    """

    rows: tuple[HostRow, ...]
    filters: Filters
    locations: tuple[str, ...]
    total: int
    up: int
    keys: int
    gpus: int
    gpus_used: int
    may_manage: bool
    names_jobs: bool
    types: tuple[str, ...]
    sorts: Mapping[str, SortLink]
    next: str
    first: str

    @property
    def shows_filters(self) -> bool:
        """A few hosts are found without filters."""
        return self.total > FEW or self.filters.any


@dataclass(frozen=True, slots=True)
class _Used:
    """What is used of the hosts of one page."""

    gpus: Mapping[int, Sequence[tuple[str, str]]]
    held: Mapping[int, int]
    runs: Mapping[int, int]


def host_list(user: User, query: Mapping[str, str] | None = None) -> HostList:
    """Return one page of hosts. Makes ten queries for any number of hosts."""
    filters = Filters.of(query or {})
    hosts = found(user, filters)
    page, cursor = page_of(hosts, filters, SIZE)
    rows, used = _rows(page), _used(page)
    ids = JobIdFilter(user, (host.last_error for host in rows))
    sums = _sums(hosts)
    places = access.visible(user, Location.objects.order_by("name"))
    kinds = Gpu.objects.filter(present=True, host__in=access.visible(user, Host.machines.all()))
    return HostList(
        rows=tuple(_row(host, used, ids) for host in rows),
        filters=filters,
        locations=tuple(places.values_list("name", flat=True)),
        **sums,
        gpus=Gpu.objects.filter(present=True, host__in=hosts).count(),
        gpus_used=GpuClaim.objects.filter(OPEN_CLAIMS, gpu__host__in=hosts).count(),
        may_manage=access.can(user, "manage", Host),
        names_jobs=ids.any,
        types=tuple(kinds.order_by("accelerator_type").values_list("accelerator_type", flat=True).distinct()),
        sorts={name: _sort_link(filters, name, first) for name, first in SORTED.items()},
        next=filters.address(after=cursor) if cursor else "",
        first=filters.address() if filters.after else "",
    )


def _sort_link(filters: Filters, name: str, first: str) -> SortLink:
    aria, wanted = next_order(filters.sort, name, first)
    return SortLink(aria, filters.address(sort=wanted))


def rights(user: User) -> Hashable:
    """Return a value that is equal for people who are shown the same list.

    It has their whole rights only while the error of a host names a job, whose id not all of them may read.
    """
    hosts = access.hosts_key(user)
    named = Host.machines.exclude(last_error="").filter(last_error__regex=MAYBE_JOB)
    return hosts, access.rights_key(user) if named.exists() else None


def fits(shown: HostList, rights: Hashable) -> bool:
    """Whether all people with these rights may be shown this list."""
    return not shown.names_jobs or (isinstance(rights, tuple) and rights[-1] is not None)


def stamp(user: User, query: Mapping[str, str]) -> list[object]:
    """Return what changes whenever the page would change, but not with every contact of a host."""
    filters = Filters.of(query)
    hosts = found(user, filters)
    columns = (
        "id",
        "name",
        "status",
        "status_since",
        "maintenance__cordoned",
        "maintenance__cordon_message",
        "maintenance__drain_at",
        "maintenance__gone_at",
        "location_id",
        "free_disk_mb",
        "cpus",
        "memory_mb",
        "last_error",
    )
    here, cursor = page_of(hosts, filters, SIZE)
    rows = {row[0]: row for row in hosts.filter(pk__in=here).values_list(*columns)}
    states = Gpu.objects.filter(present=True, host__in=here).order_by("state").values_list("state")
    return [
        [rows.get(pk) for pk in here],
        bool(cursor),
        _sums(hosts),
        GpuClaim.objects.filter(released_at=None).aggregate(Count("pk"), Max("pk")),
        Run.objects.filter(runs_on(here)).aggregate(Count("pk"), Max("created_at")),
        list(states.annotate(Count("pk"))),
    ]


def closed_text(host: Host, runs: int) -> str:
    """Say why this host takes no new jobs: it is cordoned, being drained, or drained."""
    if maintenance_of(host).drain_at is None:
        return _("takes no new jobs")
    return _("being drained") if runs else _("drained: nothing runs here")


def _sums(hosts: QuerySet[Host]) -> dict[str, int]:
    up, waits = Q(status=HostStatus.UP), ~Q(offered_key="")
    return hosts.aggregate(total=Count("pk"), up=Count("pk", filter=up), keys=Count("pk", filter=waits))


def _rows(page: Sequence[int]) -> list[Host]:
    """These hosts, in this order."""
    rows = Host.every.filter(pk__in=page).select_related("location", "maintenance")
    known = {host.pk: host for host in rows.defer("checklist", "facts")}
    return [known[pk] for pk in page if pk in known]


def _used(hosts: Sequence[int]) -> _Used:
    gpus: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    for host, model, state in Gpu.objects.filter(present=True, host__in=hosts).values_list(
        "host_id", "model", "state"
    ):
        gpus[host].append((model, state))
    return _Used(gpus, count_held(hosts), count_runs(hosts))


def _row(host: Host, used: _Used, ids: JobIdFilter) -> HostRow:
    gpus, runs = used.gpus.get(host.pk, ()), used.runs.get(host.pk, 0)
    kinds = Counter(model for model, _ in gpus)
    return HostRow(
        id=host.pk,
        url=reverse("host", args=[host.pk]),
        name=host.name,
        badge=badges.HOST[host.status],
        since=host.status_since,
        cordoned=maintenance_of(host).cordoned,
        closed=closed_text(host, runs),
        cordon_message=maintenance_of(host).cordon_message,
        location=host.location.name,
        address=f"{host.user}@{host.address}" + (f":{host.port}" if host.port != 22 else ""),
        cpus=host.cpus,
        memory_mb=host.memory_mb,
        gpus_used=used.held.get(host.pk, 0),
        gpus=len(gpus),
        gpus_out=sum(state != GpuState.OK for _, state in gpus),
        models=", ".join(f"{count} × {model}" for model, count in kinds.items()),
        free_disk_mb=host.free_disk_mb,
        runs=runs,
        error=ids.clean(shown(host.last_error)),
    )
