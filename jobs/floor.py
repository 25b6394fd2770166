"""The floor: which hosts there are for a location, what is free on them, and what could never be placed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.db.models import QuerySet

from agents.models import Gpu, Host, HostStatus, Location
from jobs.beginnings import DEFAULT
from jobs.models import GpuClaim, Run
from jobs.rules.customjob import CustomJobSpec
from jobs.rules.machines import needs
from jobs.rules.placement import Ask, GpuView, HostView, never_fits

NO_HOST = "No host is in service. Add one under Hosts."


@dataclass(frozen=True, slots=True)
class Floor:
    """The hosts on which replicas may be placed now, with what is taken of each."""

    hosts: Mapping[int, Host]
    views: tuple[HostView, ...]
    locations: frozenset[str]
    in_service: bool

    def location(self, named: str) -> str:
        return resolved(named, self.locations)


def resolved(named: str, locations: Iterable[str]) -> str:
    """A location that a client names and nobody defined is answered by the default one: Google's SDK only lets its
    own region names through."""
    return named if named in locations else DEFAULT


def ports() -> range:
    low, high = settings.TRAINYARD.ports
    return range(low, high + 1)


def asks_of(spec: CustomJobSpec) -> tuple[Ask, ...]:
    return tuple(Ask(name, needs(pool.machine)) for name, _, _, pool in spec.replicas())


def look() -> Floor:
    rows = list(Host.objects.select_related("location").defer("checklist", "facts"))
    up = [host for host in rows if host.status == HostStatus.UP and not host.cordoned]
    locations = frozenset(Location.objects.values_list("name", flat=True))
    return Floor({host.pk: host for host in up}, tuple(_views(up)), locations, bool(rows))


def refusal(spec: CustomJobSpec, named: str) -> str | None:
    """Why this job could not be placed on the location's hosts if all of them were empty.

    Hosts that nobody has looked at yet could be anything, so without a known one a job waits.
    """
    location = resolved(named, Location.objects.values_list("name", flat=True))
    known = Host.objects.filter(location__name=location, cpus__gt=0).select_related("location")
    views = _empty_views(known.defer("checklist", "facts"))
    return never_fits(asks_of(spec), views, location) if views else None


def _empty_views(hosts: QuerySet[Host]) -> list[HostView]:
    rows = list(hosts)
    gpus = _gpus(rows)
    return [_view(host, gpus[host.pk]) for host in rows]


def _views(hosts: Sequence[Host]) -> list[HostView]:
    gpus = _gpus(hosts)
    cpus: dict[int, float] = defaultdict(float)
    memory_mb: dict[int, int] = defaultdict(int)
    used_ports: dict[int, set[int]] = defaultdict(set)
    held = Run.objects.filter(released_at=None).values_list("host", "cpus", "memory_mb", "port").order_by()
    for pk, run_cpus, run_memory_mb, port in held:
        cpus[pk] += run_cpus
        memory_mb[pk] += run_memory_mb
        used_ports[pk].add(port)
    used_gpus: dict[int, set[str]] = defaultdict(set)
    # By the rows that the constraint is on: what they hold is held, whatever a run says.
    claims = GpuClaim.objects.filter(released_at=None).values_list("gpu__host", "gpu__uuid")
    for pk, uuid in claims:
        used_gpus[pk].add(uuid)
    return [
        _view(host, gpus[host.pk], cpus[host.pk], memory_mb[host.pk], used_gpus[host.pk], used_ports[host.pk])
        for host in hosts
    ]


def _gpus(hosts: Sequence[Host]) -> dict[int, list[GpuView]]:
    found: dict[int, list[GpuView]] = defaultdict(list)
    # Plain columns: a hundred hosts have a thousand of them, and this is asked at each submission.
    columns = ("host", "uuid", "accelerator_type", "index")
    for host, uuid, kind, index in Gpu.objects.filter(host__in=hosts, present=True).values_list(*columns):
        found[host].append(GpuView(uuid, kind, index))
    return found


def _view(
    host: Host,
    gpus: Sequence[GpuView],
    used_cpus: float = 0.0,
    used_memory_mb: int = 0,
    used_gpus: Iterable[str] = (),
    used_ports: Iterable[int] = (),
) -> HostView:
    return HostView(
        id=host.pk,
        name=host.name,
        location=host.location.name,
        address=host.address,
        cpus=float(host.cpus),
        memory_mb=host.memory_mb,
        gpus=tuple(gpus),
        used_cpus=used_cpus,
        used_memory_mb=used_memory_mb,
        used_gpus=frozenset(used_gpus),
        used_ports=frozenset(used_ports),
    )
