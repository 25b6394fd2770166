"""Hosts as the scheduler sees them, the requests of replicas, and their placements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agents.infra.texts import said
from jobs.rules.spec.machine_types import Needs

ANYWHERE = ("", "any")
# In a scope or place, before the projects, and before the engines. Names of locations have neither.
_FOR, _WITH = "@", "+"


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
    # The container engines that it has, if it lacks one that jobs may need; None: jobs with images run there too.
    engines: frozenset[str] | None = None

    @property
    def place(self) -> str:
        """Hosts of a location that serve the same projects and have the same engines are one place: a search takes or
        leaves all of them."""
        served = "" if self.serves is None else f"{_FOR}{','.join(map(str, sorted(self.serves)))}"
        having = "" if self.engines is None else f"{_WITH}{','.join(sorted(self.engines))}"
        return f"{self.location}{served}{having}"


def scope_of(location: str, project: int | None = None, engines: Iterable[str] = ()) -> str:
    """Where jobs may run. `project`: if hosts of the location have logins for each project: on these hosts, and on
    those of the location that serve all. `engines`: only where these are, if hosts of the location lack them."""
    of_project = "" if project is None else f"{_FOR}{project}"
    needing = _WITH + ",".join(sorted(engines)) if engines else ""
    return f"{location}{of_project}{needing}"


def location_of(scope: str) -> str:
    """The name of the location of a scope or place."""
    return scope.partition(_WITH)[0].partition(_FOR)[0]


def engines_in(scope: str) -> list[str]:
    """The engines that a scope asks for, where hosts of its location lack them."""
    return [each for each in scope.partition(_WITH)[2].split(",") if each]


def is_within(place: str, scope: str) -> bool:
    """Whether jobs with this scope (a location, or `scope_of`) may run at this place."""
    if scope in ANYWHERE:
        return True
    asked, _, needed = scope.partition(_WITH)
    given, is_incomplete, engines = place.partition(_WITH)
    if needed and is_incomplete and not set(needed.split(",")) <= set(engines.split(",")):
        return False
    location, _, project = asked.partition(_FOR)
    at, split, served = given.partition(_FOR)
    return asked in ANYWHERE or (at == location and (not split or project in served.split(",")))


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
