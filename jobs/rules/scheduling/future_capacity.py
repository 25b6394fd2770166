"""What would be free if some of what runs were over: sums by host, and whether a job would fit into them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from jobs.rules.scheduling.free_capacity import Amounts, CapacityIndex, ReservationGuard
from jobs.rules.scheduling.resource_requests import JobRequest
from jobs.rules.scheduling.running_jobs import HostClaim
from jobs.rules.spec.machine_types import Needs


@dataclass(slots=True)
class _ReplicaSize:
    """Replicas that need the same, and how many more of them there is room for, by host and in all."""

    needs: Needs
    count: int
    slots: dict[int, int] = field(default_factory=dict)
    total: int = 0


class FutureCapacity:
    """Of one location, for one job. `ends`: only what it may hold until then, next to what is reserved."""

    def __init__(
        self, capacity: CapacityIndex, request: JobRequest, location: str, ends: float | None = None
    ) -> None:
        self._sizes = sorted(
            (_ReplicaSize(*size) for size in request.sizes),
            key=lambda size: (-size.needs.gpus, -size.needs.cpus, -size.needs.memory_mb),
        )
        self.free: dict[int, Amounts] = {}
        self.guards: dict[int, list[ReservationGuard]] = {}
        self._capacity, self._ends = capacity, ends
        self._hosts = capacity.hosts_with(request.hosts_with, location)
        # Hosts on which nothing is free now are looked at when something of them is given back.
        for size in self._sizes:
            for host in capacity.candidates(size.needs, location, False):
                self.knows(host.id)

    def knows(self, host: int) -> bool:
        """Is it one of the location's hosts that have what the job is made of?"""
        if host in self.free:
            return True
        if host not in self._hosts:
            return False
        now = self._capacity.hosts[host]
        self.free[host] = now.amounts()
        if self._ends is not None and now.guards:
            self.guards[host] = [
                ReservationGuard(guard.at, guard.spare.copy())
                for guard in now.guards
                if self._ends > guard.at
            ]
        self._count(host)
        return True

    def _count(self, host: int) -> bool:
        """How many replicas have room there; whether it is more than before."""
        more = False
        for size in self._sizes:
            slots, before = self._fit(host, size.needs), size.slots.get(host, 0)
            if slots != before:
                size.slots[host] = slots
                size.total += slots - before
                more |= slots > before
        return more

    def change(self, claims: Iterable[HostClaim], sign: int = 1, until: float | None = None) -> bool:
        """They give it back (or take it again). `until`: when they would have given it back anyway.

        Whether there is now more for this job on any host.
        """
        more = False
        for claim in claims:
            host, cpus, memory_mb, kind, gpus = claim
            if not self.knows(host):
                continue
            self.free[host].add(cpus, memory_mb, kind, gpus, sign)
            for guard in self.guards.get(host, ()):
                if until is None or until > guard.at:
                    guard.spare.add(cpus, memory_mb, kind, gpus, sign)
            more |= self._count(host)
        return more

    def enough(self) -> bool:
        """Would the whole job fit?"""
        for size in self._sizes:
            if size.total < size.count:
                return False
        return len(self._sizes) == 1 or self.assign(sorted(self.free)) is not None

    def hosts_with_room(self) -> int:
        """How many hosts have room for a replica of the largest size."""
        return sum(slots > 0 for slots in self._sizes[0].slots.values())

    def assign(self, order: Sequence[int]) -> dict[int, list[HostClaim]] | None:
        """What the job would hold on which host, if the hosts are filled in this order."""
        by_cpus = sorted(
            self._sizes, key=lambda size: (-size.needs.cpus, -size.needs.memory_mb, -size.needs.gpus)
        )
        return self._filled(order, self._sizes) or self._filled(order, by_cpus)

    def _filled(
        self, order: Sequence[int], sizes: Sequence[_ReplicaSize]
    ) -> dict[int, list[HostClaim]] | None:
        assigned: dict[int, list[HostClaim]] = {}
        for size in sizes:
            needs, left = size.needs, size.count
            for host in order:
                if not left:
                    break
                # Beside nothing else: as counted.
                beside = assigned.get(host)
                slots = self._beside(host, needs, beside) if beside else size.slots.get(host, 0)
                count = min(slots, left)
                if count:
                    claim = HostClaim(host, needs.cpus, needs.memory_mb, needs.accelerator_type, needs.gpus)
                    assigned.setdefault(host, []).extend([claim] * count)
                    left -= count
            if left:
                return None
        return assigned

    def _beside(self, host: int, needs: Needs, claims: Sequence[HostClaim]) -> int:
        free = [self.free[host], *(guard.spare for guard in self.guards.get(host, ()))]
        return min(without(each, claims).slots(needs) for each in free)

    def _fit(self, host: int, needs: Needs) -> int:
        slots = self.free[host].slots(needs)
        for guard in self.guards.get(host, ()):
            slots = min(slots, guard.spare.slots(needs))
        return slots


def without(amounts: Amounts, claims: Iterable[HostClaim]) -> Amounts:
    left = amounts.copy()
    for claim in claims:
        left.add(claim.cpus, claim.memory_mb, claim.kind, claim.gpus, -1)
    return left
