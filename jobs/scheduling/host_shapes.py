"""How many hosts of each shape a location has: empty, and with what is free now. The database sums the GPUs.

A large deployment has few shapes of hosts. Whether a machine type fits somewhere is asked of shapes, not of each host.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Count, FilteredRelation, Q, QuerySet, Sum
from django.db.models.functions import Coalesce

from agents.infra.shared_answers import SharedAnswers
from agents.models import Gpu, GpuState, Host, HostStatus
from jobs.models import Run
from jobs.projects import claim_holders
from jobs.rules.spec.machine_types import Needs
from jobs.scheduling import changes

# A submit may rely on shapes of so long ago: a job that fits no host any more waits, as it does when a host is removed.
SUBMIT_RELIES_FOR = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class HostShape:
    """The resources of a host. `gpus`: how many of each accelerator type."""

    cpus: float
    memory_mb: int
    gpus: tuple[tuple[str, int], ...]

    def holds(self, wanted: Needs) -> bool:
        """Could a host of this shape hold one replica?"""
        if self.cpus < wanted.cpus or self.memory_mb < wanted.memory_mb:
            return False
        return not wanted.gpus or any(
            kind == wanted.accelerator_type and count >= wanted.gpus for kind, count in self.gpus
        )


Shapes = Mapping[HostShape, int]
_recent: SharedAnswers[str, Shapes] = SharedAnswers(SUBMIT_RELIES_FOR, 64)
_both: SharedAnswers[tuple[str, tuple[int, ...] | None], tuple[Shapes, Shapes]] = SharedAnswers(
    SUBMIT_RELIES_FOR, 64, changes.LONGEST
)


def hosts_that_hold(shapes: Shapes, wanted: Needs) -> int:
    return sum(count for shape, count in shapes.items() if shape.holds(wanted))


def empty_shapes(location: str, projects: Collection[int] | None = None) -> Shapes:
    """The known hosts of the location, as if nothing ran there. `projects`: only those on which jobs of one of these
    projects could run; None: all."""
    hosts = _with_login(Host.machines.filter(location__name=location, cpus__gt=0), projects)
    gpus = _gpus(Gpu.objects.filter(present=True, host__in=hosts.order_by()))
    rows = hosts.order_by().values_list("pk", "cpus", "memory_mb")
    return Counter(HostShape(cpus, memory_mb, gpus[host]) for host, cpus, memory_mb in rows)


def recent_empty_shapes(location: str) -> Shapes:
    """The same, at most SUBMIT_RELIES_FOR old."""
    return _recent.get(location, lambda: empty_shapes(location))


def recent_shapes(location: str, projects: Collection[int] | None = None) -> tuple[Shapes, Shapes]:
    """The hosts empty, and with what is free, as old: for pages, of which many ask at the same time."""
    key = location, None if projects is None else tuple(projects)
    return _both.get(
        key, lambda: (empty_shapes(location, projects), free_shapes(location, projects)), changes.stamp
    )


def free_shapes(location: str, projects: Collection[int] | None = None) -> Shapes:
    """The hosts of the location that take jobs now, of these projects, with what is free on each."""
    taken, taken_gpus = _taken()
    hosts = Host.machines.filter(location__name=location, status=HostStatus.UP).order_by()
    hosts = hosts.exclude(maintenance__cordoned=True).exclude(maintenance__gone_at__isnull=False)
    hosts = _with_login(hosts, projects, status=HostStatus.UP)
    free = Gpu.objects.filter(present=True, state=GpuState.OK, host__in=hosts)
    held = FilteredRelation("claims", condition=Q(claims__released_at=None))
    free = free.annotate(claim=held).filter(claim=None)
    gpus = _gpus(free.exclude(uuid__in=taken_gpus) if taken_gpus else free)
    return Counter(
        HostShape(cpus - taken[host][0], memory_mb - taken[host][1], gpus[host])
        for host, cpus, memory_mb in hosts.values_list("pk", "cpus", "memory_mb")
    )


def _with_login(
    hosts: QuerySet[Host], projects: Collection[int] | None, **of_login: object
) -> QuerySet[Host]:
    """Without the hosts on which each project has a login, and none of these projects has one like this."""
    if projects is None:
        return hosts
    logins = Host.objects.filter(project_login__project__in=projects, machine__isnull=False, **of_login)
    served = logins.order_by().values("machine")
    return hosts.exclude(Q(login_template__isnull=False) & ~Q(pk__in=served))


def _gpus(rows: QuerySet[Gpu, Any]) -> Mapping[int, tuple[tuple[str, int], ...]]:
    found: defaultdict[int, tuple[tuple[str, int], ...]] = defaultdict(tuple)
    for host, kind, count in rows.order_by().values_list("host", "accelerator_type").annotate(Count("pk")):
        found[host] = tuple(sorted((*found[host], (kind, count))))
    return found


def _taken() -> tuple[Mapping[int, tuple[float, int]], Collection[str]]:
    """The CPUs and the memory that runs hold of each host, and the GPUs of runs that a restored backup has lost."""
    taken: defaultdict[int, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    # Of a login, the machine holds them.
    machine = Coalesce("host__machine", "host")
    runs = Run.objects.filter(released_at=None).order_by().values_list(machine)
    strays = claim_holders.living_strays().order_by().values_list(machine)
    for rows in (runs, strays):
        for host, cpus, memory_mb in rows.annotate(Sum("cpus"), Sum("memory_mb")):
            taken[host] = taken[host][0] + cpus, taken[host][1] + memory_mb
    return taken, claim_holders.gpus_of_strays()
