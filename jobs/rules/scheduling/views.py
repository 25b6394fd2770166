"""Hosts as the scheduler sees them, the requests of replicas, and their placements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agents.infra.texts import said
from jobs.rules.spec.machine_types import Needs

ANYWHERE = ("", "any")
# In a scope or place, between the location and the projects. Names of locations do not have it.
_FOR = "@"


@dataclass(frozen=True, slots=True)
class GpuView:
    uuid: str
    accelerator_type: str
    index: int = 0


@dataclass(frozen=True, slots=True)
class Topology:
    """How near the GPUs of a host are to each other: the larger the number, the nearer. A pair is sorted by UUID."""

    near: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def between(self, one: str, other: str) -> int:
        return self.near.get((one, other) if one < other else (other, one), 0)


@dataclass(frozen=True, slots=True)
class HostView:
    """A host on which replicas may be placed now, and what is taken of it."""

    id: int
    name: str
    location: str
    address: str
    cpus: float
    memory_mb: int
    gpus: tuple[GpuView, ...] = ()
    used_cpus: float = 0.0
    used_memory_mb: int = 0
    used_gpus: frozenset[str] = frozenset()
    used_ports: frozenset[int] = frozenset()
    unfit: frozenset[str] = frozenset()  # of used_gpus, those that no run holds: they are in quarantine
    topology: Topology | None = None
    # The projects for which it has a login of their own; None: one login serves all projects.
    serves: frozenset[int] | None = None

    @property
    def place(self) -> str:
        """Hosts of a location that serve the same projects are one place: a search takes or leaves all of them."""
        if self.serves is None:
            return self.location
        return f"{self.location}{_FOR}{','.join(map(str, sorted(self.serves)))}"


def scope_of(location: str, project: int) -> str:
    """Where the jobs of a project may run, if hosts of the location have logins for each project: these hosts, and
    those of the location that serve all."""
    return f"{location}{_FOR}{project}"


def location_of(scope: str) -> str:
    """The name of the location of a scope or place."""
    return scope.partition(_FOR)[0]


def is_within(place: str, scope: str) -> bool:
    """Whether jobs with this scope (a location, or `scope_of`) may run at this place."""
    if scope in ANYWHERE:
        return True
    location, _, project = scope.partition(_FOR)
    at, split, served = place.partition(_FOR)
    return at == location and (not split or project in served.split(","))


@dataclass(frozen=True, slots=True)
class ReplicaRequest:
    """A replica that needs a placement."""

    replica: str
    needs: Needs


class Gang:
    """The replicas of a job, sorted for the search. A gang is made once, never changes, and is searched for often."""

    __slots__ = ("by_cpus", "by_gpus", "counts", "mixed", "requests", "sizes", "whole")

    def __init__(self, requests: Sequence[ReplicaRequest]) -> None:
        self.requests = tuple(requests)
        self.by_gpus = sorted(
            requests, key=lambda request: (-request.needs.gpus, -request.needs.cpus, -request.needs.memory_mb)
        )
        self.by_cpus = sorted(
            requests, key=lambda request: (-request.needs.cpus, -request.needs.memory_mb, -request.needs.gpus)
        )
        # How many replicas need the same, the largest first.
        self.counts = tuple(Counter(request.needs for request in self.by_gpus).items())
        self.sizes = tuple(needs for needs, _ in self.counts)
        self.mixed = len(self.sizes) > 1
        kinds = sorted({needs.accelerator_type for needs in self.sizes if needs.gpus})
        # What all need together, to find one host for them; None for one replica, or for several kinds of GPUs.
        self.whole: Needs | None = None
        if len(requests) > 1 and len(kinds) <= 1:
            self.whole = Needs(
                sum(request.needs.cpus for request in requests),
                sum(request.needs.memory_mb for request in requests),
                kinds[0] if kinds else "",
                sum(request.needs.gpus for request in requests),
            )


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a replica will run: what its run will claim."""

    replica: str
    host_id: int
    gpus: tuple[str, ...]
    port: int


@dataclass(frozen=True, slots=True)
class NoCapacity:
    """There is no capacity now. The text says what is needed and what is free."""

    text: str


def cpu_text(cpus: float) -> str:
    """`1 CPU`, `0.25 CPUs`."""
    return said("1 CPU") if cpus == 1 else said("{number} CPUs", number=f"{cpus:g}")


def needs_text(needs: Needs) -> str:
    """`8 NVIDIA_H100_80GB with 208 CPUs and 1916928 MB`."""
    shown = cpu_text(needs.cpus)
    if needs.memory_mb:
        shown = said("{cpus} and {memory} MB", cpus=shown, memory=needs.memory_mb)
    if not needs.gpus:
        return shown
    return said("{number} {kind} with {rest}", number=needs.gpus, kind=needs.accelerator_type, rest=shown)
