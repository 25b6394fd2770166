"""What would be free if some running jobs had ended: amounts by host, and whether a waiting job would fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from jobs.rules.scheduling.free_capacity import Amounts, CapacityIndex, ReservationGuard
from jobs.rules.scheduling.resource_requests import JobRequest
from jobs.rules.scheduling.running_jobs import HostClaim
from jobs.rules.spec.machine_types import Needs


@dataclass(slots=True)
class _ReplicaSize:
    """Replicas with equal needs, and how many more of them could be placed, by host (`slots`) and in all (`total`)."""

    needs: Needs
    count: int
    slots: dict[int, int] = field(default_factory=dict)
    total: int = 0


class FutureCapacity:
    """The future capacity of one location for one job.

    `ends`: when the job ends; then only what reservations leave is counted. None: reservations are not considered.
    """

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
        # Hosts on which nothing is free now are added when something of them is given back.
        for size in self._sizes:
            for host in capacity.candidates(size.needs, location, False):
                self.knows(host.id)

    def knows(self, host: int) -> bool:
        """Is this a host of the location with GPUs that the job needs? If so, it is counted from now on."""
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
        """Count again how many replicas the host holds. True if it is more than before."""
        more = False
        for size in self._sizes:
            slots, before = self._fit(host, size.needs), size.slots.get(host, 0)
            if slots != before:
                size.slots[host] = slots
                size.total += slots - before
                more |= slots > before
        return more

    def change(self, claims: Iterable[HostClaim], sign: int = 1, until: float | None = None) -> bool:
        """Give these claims back (or, with sign -1, take them again). `until`: when they would have ended anyway.

        True if any host can now hold more of this job than before.
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
        """How many hosts can hold a replica of the largest size."""
        return sum(slots > 0 for slots in self._sizes[0].slots.values())

    def assign(self, order: Sequence[int]) -> dict[int, list[HostClaim]] | None:
        """What the job would claim on which host if the hosts are filled in this order; None if it does not fit."""
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
                # A host to which nothing is assigned yet holds as many as were counted.
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
