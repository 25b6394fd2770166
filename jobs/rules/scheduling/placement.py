"""Gang placement: every replica of a job gets its placement at once, or none does, and the reason is given as text.

A `Placer` serves one pass over the waiting jobs. It finds hosts without looking at each of them (free_capacity.py), so
a pass over n jobs grows with n, not with n times the hosts.

Packing: a host is filled before the next is opened, jobs without GPUs go to hosts without GPUs first, all GPUs of a
replica are on one host (which ones: topology.py), and the replicas of a job are on as few hosts as can be.

How exact it is: a gang of equal replicas is placed whenever it can be. A gang of unequal ones is tried largest first by
GPUs, then by CPUs, then by a search that is given up after some thousand steps; so a gang of many sizes may have to
wait although it would fit. `never_fits` does not rely on a search that was given up: it refuses only a job that surely
never fits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from agents.infra.texts import join, said, said_of
from jobs.rules.scheduling.free_capacity import CPUS, CPUS_BESIDE_GPUS, NEVER, CapacityIndex, HostCapacity
from jobs.rules.scheduling.views import (
    ANYWHERE,
    Gang,
    GpuView,
    HostView,
    NoCapacity,
    Placement,
    ReplicaRequest,
    cpu_text,
    location_of,
    needs_text,
)
from jobs.rules.spec.machine_types import Needs

__all__ = [
    "ANYWHERE",
    "ReplicaRequest",
    "Gang",
    "GpuView",
    "HostView",
    "NoCapacity",
    "Placer",
    "Placement",
    "never_fits",
    "needs_text",
]

# How many hosts a search may look at: a pass over the queue must stay quick, a submit may take a little longer.
_STEPS_IN_A_PASS = 2_000
_STEPS_AT_SUBMIT = 50_000
_DEEPEST_SEARCH = 200

Taken = list[tuple[HostCapacity, ReplicaRequest, Placement]]


class Placer:
    """Places jobs one after the other. The capacity that a job takes is gone for the jobs that follow."""

    def __init__(self, hosts: Sequence[HostView], port_range: range) -> None:
        self.capacity = CapacityIndex(hosts)
        self.ports = port_range
        self._spread = 0
        self._ends = NEVER
        self._backfill = False

    def place(
        self,
        requests: Sequence[ReplicaRequest],
        location: str,
        spread: int = 0,
        ends: float = NEVER,
        backfill: bool = False,
    ) -> tuple[Placement, ...] | NoCapacity:
        """Placements for all requests, in their order, or why there are none.

        `spread` varies the port that is tried first. `ends`: when the job ends at the latest. `backfill`: the job ends
        before any reservation starts.
        """
        placements = self.find(Gang(requests), location, spread, ends, backfill)
        return NoCapacity(self.why(requests, location)) if placements is None else placements

    def would_place(
        self, requests: Sequence[ReplicaRequest], location: str
    ) -> tuple[Placement, ...] | NoCapacity:
        """The same as `place`, and all of it is free again."""
        found = self.place(requests, location)
        if not isinstance(found, NoCapacity):
            seats = zip(requests, found, strict=True)
            self._take_back_all([(self.capacity.hosts[seat.host_id], each, seat) for each, seat in seats])
        return found

    def find(
        self, gang: Gang, location: str, spread: int, ends: float, backfill: bool
    ) -> tuple[Placement, ...] | None:
        """The same as `place`, with None in place of a text."""
        if not all(self.capacity.max_replicas(needs, location) >= count for needs, count in gang.counts):
            return None
        self._spread, self._ends, self._backfill = spread, ends, backfill
        return self._placements(gang, location, _STEPS_IN_A_PASS)[0]

    # -- finding --

    def _placements(self, gang: Gang, location: str, steps: int) -> tuple[tuple[Placement, ...] | None, bool]:
        """The placements; or None, and whether it is certain that there are none."""
        if not all(self.capacity.might_hold(needs, location) for needs in gang.sizes):
            return None, True
        found, sure = self._together(gang.by_gpus, gang.whole, location), True
        if found is None and gang.mixed:
            found = self._together(gang.by_cpus, gang.whole, location)
            found = found or self._one_by_one(gang.by_gpus, location)
            found = found or self._one_by_one(gang.by_cpus, location)
        if found is None and gang.mixed and all(self._first(needs, location) for needs in gang.sizes):
            found, sure = self._search(gang.by_gpus, location, steps)
        if found is None:
            return None, sure
        return tuple(found[request.replica] for request in gang.requests), True

    def _together(
        self, requests: Sequence[ReplicaRequest], whole: Needs | None, location: str
    ) -> dict[str, Placement] | None:
        """Place all on one host if one can hold them, else on few hosts: next comes a host that holds all that
        are left, or the host that holds the most."""
        host = self._first(whole, location, len(requests)) if whole is not None else None
        if host is not None:
            return self._by_replica(self._take_all(host, requests))
        taken: Taken = []
        for needs, group in groupby(requests, key=lambda request: request.needs):
            left = list(group)
            while left:
                host = self._next(needs, len(left), location)
                if host is None:
                    self._take_back_all(taken)
                    return None
                count = max(min(len(left), host.slots(needs, self.ports, self._ends)), 1)
                taken += self._take_all(host, left[:count])
                del left[:count]
        return self._by_replica(taken)

    def _next(self, needs: Needs, count: int, location: str) -> HostCapacity | None:
        if count > 1:
            whole = self._first(_times(needs, count), location, count)
            return whole or next(self._candidates(needs, location, fullest=False), None)
        return self._first(needs, location)

    def _one_by_one(self, requests: Sequence[ReplicaRequest], location: str) -> dict[str, Placement] | None:
        taken: Taken = []
        for request in requests:
            host = self._first(request.needs, location)
            if host is None:
                self._take_back_all(taken)
                return None
            taken.append((host, request, self._take(host, request)))
        return self._by_replica(taken)

    def _search(
        self, requests: Sequence[ReplicaRequest], location: str, steps: int
    ) -> tuple[dict[str, Placement] | None, bool]:
        """Try every way to place unequal requests until the steps are used up. Of hosts with the same shape only one is
        tried."""
        left = steps

        def place_from(position: int) -> dict[str, Placement] | None:
            nonlocal left
            if position == len(requests):
                return {}
            request = requests[position]
            shapes: dict[tuple[object, ...], HostCapacity] = {}
            for host in self._candidates(request.needs, location):
                left -= 1
                if left < 0:
                    return None
                shapes.setdefault(host.shape, host)
            for host in shapes.values():
                placement = self._take(host, request)
                rest = place_from(position + 1)
                if rest is not None:
                    return {request.replica: placement, **rest}
                self.capacity.take_back(host, request, placement, self._ends)
            return None

        if len(requests) > _DEEPEST_SEARCH:
            return None, False
        found = place_from(0)
        return found, found is not None or left >= 0

    def _first(self, needs: Needs, location: str, count: int = 1) -> HostCapacity | None:
        return next(self._candidates(needs, location, count=count), None)

    def _candidates(
        self, needs: Needs, location: str, fullest: bool = True, count: int = 1
    ) -> Iterator[HostCapacity]:
        """The hosts that can hold one such replica, best fit first."""
        hosts = self.capacity.candidates(needs, location, self._backfill, fullest)
        return (host for host in hosts if host.fits(needs, self.ports, self._ends, count))

    # -- taking capacity and giving it back --

    def _take(self, host: HostCapacity, request: ReplicaRequest) -> Placement:
        return self.capacity.place(host, [request], self.ports, self._spread, self._ends)[0]

    def _take_all(self, host: HostCapacity, requests: Sequence[ReplicaRequest]) -> Taken:
        placements = self.capacity.place(host, requests, self.ports, self._spread, self._ends)
        return [(host, request, placement) for request, placement in zip(requests, placements, strict=True)]

    def _take_back_all(self, taken: Taken) -> None:
        for host, request, placement in reversed(taken):
            self.capacity.take_back(host, request, placement, self._ends)

    @staticmethod
    def _by_replica(taken: Taken) -> dict[str, Placement]:
        return {request.replica: placement for _, request, placement in taken}

    # -- the reason as text --

    def why(self, requests: Sequence[ReplicaRequest], location: str) -> str:
        return said("{words}.", words=self.lacking(requests, location))

    def lacking(self, requests: Sequence[ReplicaRequest], location: str) -> str:
        """What these replicas need, and what is free: a sentence to which more may be added."""
        wanted = Counter(request.needs for request in requests)
        needed = join(", ", [join(" x ", [str(count), needs_text(needs)]) for needs, count in wanted.items()])
        free = self._free(requests, location)
        where = location_of(location)
        if where in ANYWHERE:
            return said("Needs {needs}; {free}", needs=needed, free=free)
        return said("Needs {needs} in {location}; {free}", needs=needed, location=where, free=free)

    def _free(self, requests: Sequence[ReplicaRequest], location: str) -> str:
        capacity = self.capacity
        groups = [*capacity.all_groups(CPUS, location), *capacity.all_groups(CPUS_BESIDE_GPUS, location)]
        if not groups:
            return said("no host is there")
        parts = []
        for kind in sorted({request.needs.accelerator_type for request in requests if request.needs.gpus}):
            of_kind = capacity.all_groups(kind, location)
            total = sum(group.total for group in of_kind)
            most = max((group.most for group in of_kind), default=0)
            unfit = self._out_of_use(kind, location)
            of_kind_text = said(
                "{number} {kind} free, at most {most} on one host", number=total, kind=kind, most=most
            )
            parts.append(join(" ", [of_kind_text, *unfit]))
        total, most = sum(group.total for group in groups), max(group.most for group in groups)
        parts.append(
            said("{cpus} free, at most {most} on one host", cpus=cpu_text(total), most=f"{max(most, 0):g}")
        )
        if any(request.needs.memory_mb for request in requests):
            most_mb = max(host.memory_mb for host in capacity.of_location(location))
            parts.append(said("at most {number} MB of memory are free on one host", number=max(most_mb, 0)))
        return join("; ", parts)

    def _out_of_use(self, kind: str, location: str) -> list[str]:
        if not self.capacity.unfit:
            return []
        hosts = [host.view for host in self.capacity.of_location(location) if host.view.unfit]
        unfit = sum(gpu.accelerator_type == kind and gpu.uuid in h.unfit for h in hosts for gpu in h.gpus)
        if not unfit:
            return []
        return [said_of(unfit, "({number} is quarantined)", "({number} are quarantined)")]


def _times(needs: Needs, count: int) -> Needs:
    return Needs(needs.cpus * count, needs.memory_mb * count, needs.accelerator_type, needs.gpus * count)


def never_fits(requests: Sequence[ReplicaRequest], hosts: Sequence[HostView], location: str) -> str | None:
    """Why these hosts could not hold the job even if all were empty; None if they could, or if that is uncertain."""
    empty = [
        HostView(view.id, view.name, view.location, view.address, view.cpus, view.memory_mb, view.gpus)
        for view in hosts
    ]
    # As many ports as replicas: ports are not a property of the hardware.
    placer = Placer(empty, range(1, len(requests) + 1))
    placements, sure = placer._placements(Gang(requests), location, _STEPS_AT_SUBMIT)
    if placements is not None or not sure:
        return None
    never = said("Can never be placed, even with every host free.")
    return join(" ", [never, placer.why(requests, location)])
