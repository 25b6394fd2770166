"""What is free on each host, and where to find it without looking at every host.

`HostCapacity` is what is still free on one host. A reservation that starts later puts a guard on the host: a job that
would still run at that moment may take no more than the guard has to spare. Buckets hold hosts by how much of one
resource is free on them; hosts with guards are kept in buckets of their own.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from jobs.rules.scheduling.topology import choose_gpus
from jobs.rules.scheduling.views import HostView, Placement, ReplicaRequest, is_within
from jobs.rules.spec.machine_types import Needs

EPSILON = 1e-6
NEVER = float("inf")
MANY = 1_000_000_000


@dataclass(slots=True)
class Amounts:
    """CPUs, memory, and GPUs by type. They may become negative where more is promised than there is."""

    cpus: float
    memory_mb: int
    gpus: dict[str, int]

    def slots(self, needs: Needs) -> int:
        """How many such replicas fit."""
        gpus = self.gpus.get(needs.accelerator_type, 0) if needs.gpus else 0
        return _slots(needs, self.cpus, self.memory_mb, gpus)

    def add(self, cpus: float, memory_mb: int, kind: str, gpus: int, sign: int = 1) -> None:
        self.cpus += sign * cpus
        self.memory_mb += sign * memory_mb
        if gpus:
            self.gpus[kind] = self.gpus.get(kind, 0) + sign * gpus

    def copy(self) -> Amounts:
        return Amounts(self.cpus, self.memory_mb, dict(self.gpus))


def _slots(needs: Needs, cpus: float, memory_mb: int, gpus: int) -> int:
    """How many such replicas these amounts hold; `gpus` are of their kind. Searches spend most of their time here."""
    most = (cpus + EPSILON) // needs.cpus if needs.cpus else MANY
    if needs.gpus:
        most = min(most, gpus // needs.gpus)
    if needs.memory_mb:
        most = min(most, memory_mb // needs.memory_mb)
    return max(int(most), 0)


@dataclass(slots=True)
class ReservationGuard:
    """What a reservation that starts at `at` leaves of one host."""

    at: float
    spare: Amounts


class HostCapacity:
    __slots__ = ("cpus", "gpus", "guards", "id", "memory_mb", "ports", "view")

    def __init__(self, view: HostView) -> None:
        self.view = view
        self.id = view.id
        self.cpus = view.cpus - view.used_cpus
        self.memory_mb = view.memory_mb - view.used_memory_mb
        self.ports = set(view.used_ports)
        self.gpus: dict[str, list[tuple[int, str]]] = {}
        self.guards: list[ReservationGuard] = []
        used = view.used_gpus
        for gpu in view.gpus:
            kind = gpu.accelerator_type
            if kind not in self.gpus:
                self.gpus[kind] = []
            if gpu.uuid not in used:
                self.gpus[kind].append((gpu.index, gpu.uuid))
        for free in self.gpus.values():
            free.sort()

    def fits(self, needs: Needs, ports: range, ends: float = NEVER, count: int = 1) -> bool:
        """Does the host have capacity for a replica that may run until `ends`, and ports for `count` replicas?"""
        return (
            self.cpus + EPSILON >= needs.cpus
            and self.memory_mb >= needs.memory_mb
            and (not needs.gpus or len(self.gpus.get(needs.accelerator_type, ())) >= needs.gpus)
            and len(self.ports) + count <= len(ports)
            and (not self.guards or self._leaves_enough(needs, ends))
        )

    def _leaves_enough(self, needs: Needs, ends: float) -> bool:
        return all(ends <= guard.at or guard.spare.slots(needs) for guard in self.guards)

    def slots(self, needs: Needs, ports: range, ends: float = NEVER) -> int:
        """How many such replicas the host can hold now."""
        gpus = len(self.gpus.get(needs.accelerator_type, ())) if needs.gpus else 0
        most = min(_slots(needs, self.cpus, self.memory_mb, gpus), len(ports) - len(self.ports))
        return min([most, *(guard.spare.slots(needs) for guard in self.guards if ends > guard.at)])

    def amounts(self) -> Amounts:
        return Amounts(self.cpus, self.memory_mb, {kind: len(free) for kind, free in self.gpus.items()})

    def take(self, needs: Needs, port: int, ends: float) -> tuple[str, ...]:
        """Take what the replica needs. Returns the GPUs that it gets."""
        self.cpus -= needs.cpus
        self.memory_mb -= needs.memory_mb
        self.ports.add(port)
        self._owe(needs, ends, -1)
        if not needs.gpus:
            return ()
        free = self.gpus[needs.accelerator_type]
        chosen = choose_gpus([uuid for _, uuid in free], needs.gpus, self.view.topology)
        self.gpus[needs.accelerator_type] = [each for each in free if each[1] not in chosen]
        return chosen

    def give(self, needs: Needs, placement: Placement, ends: float) -> None:
        """Undo `take`."""
        self.cpus += needs.cpus
        self.memory_mb += needs.memory_mb
        self.ports.discard(placement.port)
        self._owe(needs, ends, 1)
        if needs.gpus:
            index = {gpu.uuid: gpu.index for gpu in self.view.gpus}
            free = self.gpus[needs.accelerator_type]
            free.extend((index[uuid], uuid) for uuid in placement.gpus)
            free.sort()

    def _owe(self, needs: Needs, ends: float, sign: int) -> None:
        for guard in self.guards:
            if ends > guard.at:
                guard.spare.add(needs.cpus, needs.memory_mb, needs.accelerator_type, needs.gpus, sign)

    @property
    def shape(self) -> tuple[object, ...]:
        """Hosts of the same shape are interchangeable for a search."""
        free = tuple(sorted((name, len(free)) for name, free in self.gpus.items()))
        return (self.cpus, self.memory_mb, free, id(self) if self.guards else 0)


# The buckets of free CPUs are kept apart for hosts without and with GPUs.
CPUS, CPUS_BESIDE_GPUS = "cpus", "cpus of GPU hosts"
# In which bucket a host is: by location, by the resource that is counted, by whether it is guarded; and its level: how
# much of the resource is free.
Where = tuple[tuple[str, str, bool], int]


_by_id = attrgetter("id")


class CapacityBuckets:
    """The hosts of one location by how much of one resource is free on them, and then by their ids."""

    def __init__(self) -> None:
        self._levels: dict[int, list[HostCapacity]] = {}

    def put(self, level: int, host: HostCapacity) -> None:
        if level in self._levels:
            insort(self._levels[level], host, key=_by_id)
        else:
            self._levels[level] = [host]

    def take(self, level: int, host: HostCapacity) -> None:
        hosts = self._levels[level]
        del hosts[bisect_left(hosts, host.id, key=_by_id)]
        if not hosts:
            del self._levels[level]

    def levels(self, at_least: int) -> list[int]:
        return [level for level in self._levels if level >= at_least]

    def at(self, level: int) -> Sequence[HostCapacity]:
        return self._levels.get(level, ())

    def fit(self, each: int) -> int:
        """How often `each` is free, counted host by host."""
        return sum(level // each * len(hosts) for level, hosts in self._levels.items() if level >= each)

    @property
    def most(self) -> int:
        return max(self._levels, default=0)

    @property
    def total(self) -> int:
        return sum(level * len(hosts) for level, hosts in self._levels.items() if level > 0)


class CapacityIndex:
    """All hosts, in buckets by location, by resource, and by whether they are guarded."""

    def __init__(self, hosts: Iterable[HostView]) -> None:
        # In the order of their ids, so that the order in which rows came changes nothing.
        self.hosts = {view.id: HostCapacity(view) for view in sorted(hosts, key=lambda view: view.id)}
        self.unfit = any(host.view.unfit for host in self.hosts.values())
        self._all_places = sorted({host.view.place for host in self.hosts.values()})
        self._places: dict[str, list[str]] = {}
        self._buckets: dict[tuple[str, str, bool], CapacityBuckets] = {}
        self._hosts_with: dict[tuple[str, tuple[str, ...]], frozenset[int]] = {}
        # Host ids by location and kind of GPU; under the empty kind, all hosts of the location.
        self._by_kind: dict[tuple[str, str], set[int]] = {}
        for host in self.hosts.values():
            for kind in ("", *host.gpus):
                self._by_kind.setdefault((host.view.place, kind), set()).add(host.view.id)
            for where in _where(host):
                self._file(host, where)

    def candidates(
        self, needs: Needs, location: str, backfill: bool, fullest: bool = True
    ) -> Iterator[HostCapacity]:
        """The hosts with enough of the scarcest resource (GPUs, or else CPUs), the fullest first (or the emptiest).

        A job that ends before any reservation starts (`backfill`) goes to guarded hosts first: other jobs cannot.
        """
        kinds = (needs.accelerator_type,) if needs.gpus else (CPUS, CPUS_BESIDE_GPUS)
        at_least = needs.gpus or int(needs.cpus)
        for guarded in (True, False) if backfill else (False, True):
            for kind in kinds:
                groups = self.groups(kind, location, guarded)
                levels = {level for group in groups for level in group.levels(at_least)}
                for level in sorted(levels, reverse=not fullest):
                    for group in groups:
                        yield from group.at(level)

    def might_hold(self, needs: Needs, location: str) -> bool:
        """Is enough of the scarcest resource free on any host? If not, no search finds a placement."""
        kinds = (needs.accelerator_type,) if needs.gpus else (CPUS, CPUS_BESIDE_GPUS)
        at_least = needs.gpus or int(needs.cpus)
        for kind in kinds:
            for group in self.all_groups(kind, location):
                if group.most >= at_least:
                    return True
        return False

    def max_replicas(self, needs: Needs, location: str) -> int:
        """An upper bound of how many such replicas can be placed: by the scarcest resource alone, guards ignored."""
        if not needs.gpus and needs.cpus < 1:
            return MANY
        kinds = (needs.accelerator_type,) if needs.gpus else (CPUS, CPUS_BESIDE_GPUS)
        groups = [group for kind in kinds for group in self.all_groups(kind, location)]
        return sum(group.fit(needs.gpus or int(needs.cpus)) for group in groups)

    def groups(self, kind: str, location: str, guarded: bool) -> list[CapacityBuckets]:
        keys = [(place, kind, guarded) for place in self.places(location)]
        return [self._buckets[key] for key in keys if key in self._buckets]

    def all_groups(self, kind: str, location: str) -> list[CapacityBuckets]:
        return [*self.groups(kind, location, False), *self.groups(kind, location, True)]

    def of_location(self, location: str) -> Iterator[HostCapacity]:
        """The hosts of a location."""
        places = self.places(location)
        return (host for host in self.hosts.values() if host.view.place in places)

    def places(self, location: str) -> list[str]:
        """The places within a location, or within the scope of one project there (views.py)."""
        if location not in self._places:
            self._places[location] = [place for place in self._all_places if is_within(place, location)]
        return self._places[location]

    def hosts_with(self, kinds: tuple[str, ...], location: str) -> frozenset[int]:
        """The hosts of a location that have GPUs of any of these kinds, free or not; for an empty kind, all of them."""
        key = (location, kinds)
        if key not in self._hosts_with:
            found = (
                self._by_kind[place, kind]
                for place in self.places(location)
                for kind in kinds
                if (place, kind) in self._by_kind
            )
            self._hosts_with[key] = frozenset().union(*found)
        return self._hosts_with[key]

    def place(
        self, host: HostCapacity, requests: Sequence[ReplicaRequest], ports: range, spread: int, ends: float
    ) -> list[Placement]:
        """Place these requests on the host. Each gets the first free port from `spread` on."""
        start, count = spread % len(ports), len(ports)
        placements: list[Placement] = []
        before, step = _where(host), 0
        for request in requests:
            while (port := ports[(start + step) % count]) in host.ports:
                step += 1
                if step >= count:
                    raise ValueError("no port is free")
            gpus = host.take(request.needs, port, ends)
            placements.append(Placement(request.replica, host.id, gpus, port))
        self._refile(host, before)
        return placements

    def take_back(
        self, host: HostCapacity, request: ReplicaRequest, placement: Placement, ends: float
    ) -> None:
        before = _where(host)
        host.give(request.needs, placement, ends)
        self._refile(host, before)

    def guard(self, spare: Mapping[int, Amounts], at: float) -> None:
        """Guard these hosts: jobs that still run at `at` get no more than `spare` of them."""
        for host_id, amounts in spare.items():
            host = self.hosts[host_id]
            before = _where(host)
            host.guards.append(ReservationGuard(at, amounts))
            self._refile(host, before)

    def close(self, hosts: Iterable[int], at: float) -> None:
        """Place nothing more on these hosts that would still run at `at`."""
        self.guard({host: Amounts(0.0, 0, {}) for host in hosts}, at)

    def _refile(self, host: HostCapacity, before: Sequence[Where]) -> None:
        """Move the host to other buckets where its levels have changed; most of them have not."""
        for (key, level), after in zip(before, _where(host), strict=True):
            if (key, level) != after:
                self._buckets[key].take(level, host)
                self._file(host, after)

    def _file(self, host: HostCapacity, where: Where) -> None:
        key, level = where
        if key not in self._buckets:
            self._buckets[key] = CapacityBuckets()
        self._buckets[key].put(level, host)


def _where(host: HostCapacity) -> list[Where]:
    place, guarded = host.view.place, bool(host.guards)
    cpus = CPUS_BESIDE_GPUS if host.gpus else CPUS
    where: list[Where] = [((place, cpus, guarded), int(host.cpus + EPSILON))]
    where += [((place, kind, guarded), len(free)) for kind, free in host.gpus.items()]
    return where
