"""What would be free if some of what runs were over: sums by host, and whether a job would fit into them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jobs.rules.asks import Asks
from jobs.rules.machines import Needs
from jobs.rules.rooms import Amounts, Guard, House
from jobs.rules.running import Claim


class Stock:
    """Of one location, for one job. `ends`: only what it may hold until then, next to what is reserved."""

    def __init__(self, house: House, asks: Asks, location: str, ends: float | None = None) -> None:
        self.sizes = sorted(asks.sizes, key=lambda size: (-size[0].gpus, -size[0].cpus, -size[0].memory_mb))
        self.free: dict[int, Amounts] = {}
        self.guards: dict[int, list[Guard]] = {}
        self._house, self._ends = house, ends
        self._there = house.having(asks.hosts_with, location)
        self._slots: list[dict[int, int]] = [{} for _ in self.sizes]
        self._total = [0] * len(self.sizes)
        # Hosts on which nothing is free now are looked at when something of them is given back.
        for needs, _ in self.sizes:
            for room in house.candidates(needs, location, False):
                self.knows(room.host.id)

    def knows(self, host: int) -> bool:
        """Is it one of the location's hosts that have what the job is made of?"""
        if host in self.free:
            return True
        if host not in self._there:
            return False
        room = self._house.rooms[host]
        self.free[host] = room.amounts()
        if self._ends is not None and room.guards:
            self.guards[host] = [
                Guard(guard.at, guard.spare.copy()) for guard in room.guards if self._ends > guard.at
            ]
        self._count(host)
        return True

    def _count(self, host: int) -> bool:
        """How many replicas have room there; whether it is more than before."""
        more = False
        for number, (needs, _) in enumerate(self.sizes):
            slots, before = self._fit(host, needs), self._slots[number].get(host, 0)
            if slots != before:
                self._slots[number][host] = slots
                self._total[number] += slots - before
                more |= slots > before
        return more

    def change(self, claims: Iterable[Claim], sign: int = 1, until: float | None = None) -> bool:
        """They give it back (or take it again). `until`: when they would have given it back anyway.

        Whether there is now more for this job on any host.
        """
        more = False
        for claim in claims:
            if not self.knows(claim.host):
                continue
            self.free[claim.host].add(claim.cpus, claim.memory_mb, claim.kind, claim.gpus, sign)
            for guard in self.guards.get(claim.host, ()):
                if until is None or until > guard.at:
                    guard.spare.add(claim.cpus, claim.memory_mb, claim.kind, claim.gpus, sign)
            more |= self._count(claim.host)
        return more

    def enough(self) -> bool:
        """Would the whole job fit?"""
        if any(total < count for total, (_, count) in zip(self._total, self.sizes, strict=True)):
            return False
        return len(self.sizes) == 1 or self.seats(sorted(self.free)) is not None

    def hosts_with_room(self) -> int:
        """How many hosts have room for a replica of the largest size."""
        return sum(slots > 0 for slots in self._slots[0].values())

    def seats(self, order: Sequence[int]) -> dict[int, list[Claim]] | None:
        """What the job would hold on which host, if the hosts are filled in this order."""
        by_cpus = sorted(self.sizes, key=lambda size: (-size[0].cpus, -size[0].memory_mb, -size[0].gpus))
        return self._filled(order, self.sizes) or self._filled(order, by_cpus)

    def _filled(
        self, order: Sequence[int], sizes: Sequence[tuple[Needs, int]]
    ) -> dict[int, list[Claim]] | None:
        seats: dict[int, list[Claim]] = {}
        for needs, count in sizes:
            left = count
            for host in order:
                there = min(self._beside(host, needs, seats.get(host, ())), left) if left else 0
                if there:
                    claim = Claim(host, needs.cpus, needs.memory_mb, needs.accelerator_type, needs.gpus)
                    seats.setdefault(host, []).extend([claim] * there)
                    left -= there
            if left:
                return None
        return seats

    def _beside(self, host: int, needs: Needs, claims: Sequence[Claim]) -> int:
        if not claims:
            return self._fit(host, needs)
        free = [self.free[host], *(guard.spare for guard in self.guards.get(host, ()))]
        return min(without(each, claims).slots(needs) for each in free)

    def _fit(self, host: int, needs: Needs) -> int:
        slots = self.free[host].slots(needs)
        for guard in self.guards.get(host, ()):
            slots = min(slots, guard.spare.slots(needs))
        return slots


def without(amounts: Amounts, claims: Iterable[Claim]) -> Amounts:
    left = amounts.copy()
    for claim in claims:
        left.add(claim.cpus, claim.memory_mb, claim.kind, claim.gpus, -1)
    return left
