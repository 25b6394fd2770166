"""Gangs onto hosts: every replica of a job gets its place at once, or none does, with the reason in words.

A `Placer` is made for one pass over the waiting jobs. It finds a place without looking at every host (rooms.py), and a
pass over n jobs grows with n, not with n times the hosts.

Packing: a host is filled before the next is opened, jobs without GPUs go to hosts without GPUs first, all GPUs of a
replica are on one host (which ones: topology.py), and the replicas of a job are on as few hosts as can be.

How exact it is: a gang of equal replicas is placed whenever it can be. A gang of unequal ones is tried largest first by
GPUs, then by CPUs, then by a search that is given up after some thousand steps; a gang so intricate may be told to wait
although it would fit. `never_fits` does not take that for an answer: it refuses only what surely never fits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

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

# How many rooms a search may look at: a pass over the queue must stay quick, a submit may think a little.
_STEPS_IN_A_PASS = 2_000
_STEPS_AT_SUBMIT = 50_000
_DEEPEST_SEARCH = 200

Taken = list[tuple[HostCapacity, ReplicaRequest, Placement]]


class Placer:
    """Places jobs one after the other; each takes its room from those that follow."""

    def __init__(self, hosts: Sequence[HostView], port_range: range) -> None:
        self.house = CapacityIndex(hosts)
        self.ports = port_range
        self._spread = 0
        self._ends = NEVER
        self._backfill = False

    def place(
        self,
        asks: Sequence[ReplicaRequest],
        location: str,
        spread: int = 0,
        ends: float = NEVER,
        backfill: bool = False,
    ) -> tuple[Placement, ...] | NoCapacity:
        """Seats for all, in the order of the asks, or why there are none.

        `spread` varies the port tried first; `ends` is until when the job may stay; `backfill`: it is gone before
        anything that is reserved begins.
        """
        seats = self.find(Gang(asks), location, spread, ends, backfill)
        return NoCapacity(self.why(asks, location)) if seats is None else seats

    def find(
        self, gang: Gang, location: str, spread: int, ends: float, backfill: bool
    ) -> tuple[Placement, ...] | None:
        """The same, without words."""
        if not all(self.house.at_most(needs, location) >= count for needs, count in gang.counts):
            return None
        self._spread, self._ends, self._backfill = spread, ends, backfill
        return self._seats(gang, location, _STEPS_IN_A_PASS)[0]

    # -- finding --

    def _seats(self, gang: Gang, location: str, steps: int) -> tuple[tuple[Placement, ...] | None, bool]:
        """Seats if they were found; else None, and whether it is sure that there are none."""
        if not all(self.house.might_hold(needs, location) for needs in gang.sizes):
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
        return tuple(found[ask.replica] for ask in gang.asks), True

    def _together(
        self, asks: Sequence[ReplicaRequest], whole: Needs | None, location: str
    ) -> dict[str, Placement] | None:
        """On one host if there is one, else on few: where all that is left fits, or the host that takes the most."""
        room = self._first(whole, location, len(asks)) if whole is not None else None
        if room is not None:
            return self._write(self._seat_all(room, asks))
        taken: Taken = []
        for needs, group in groupby(asks, key=lambda ask: ask.needs):
            left = list(group)
            while left:
                room = self._next(needs, len(left), location)
                if room is None:
                    self._undo(taken)
                    return None
                count = max(min(len(left), room.slots(needs, self.ports, self._ends)), 1)
                taken += self._seat_all(room, left[:count])
                del left[:count]
        return self._write(taken)

    def _next(self, needs: Needs, count: int, location: str) -> HostCapacity | None:
        if count > 1:
            whole = self._first(_times(needs, count), location, count)
            return whole or next(self._candidates(needs, location, fullest=False), None)
        return self._first(needs, location)

    def _one_by_one(self, asks: Sequence[ReplicaRequest], location: str) -> dict[str, Placement] | None:
        taken: Taken = []
        for ask in asks:
            room = self._first(ask.needs, location)
            if room is None:
                self._undo(taken)
                return None
            taken.append((room, ask, self._seat(room, ask)))
        return self._write(taken)

    def _search(
        self, asks: Sequence[ReplicaRequest], location: str, steps: int
    ) -> tuple[dict[str, Placement] | None, bool]:
        """Every way to seat unequal asks, one room of a shape for all of that shape, until the steps are used up."""
        left = steps

        def seat_from(position: int) -> dict[str, Placement] | None:
            nonlocal left
            if position == len(asks):
                return {}
            ask = asks[position]
            shapes: dict[tuple[object, ...], HostCapacity] = {}
            for room in self._candidates(ask.needs, location):
                left -= 1
                if left < 0:
                    return None
                shapes.setdefault(room.shape, room)
            for room in shapes.values():
                seat = self._seat(room, ask)
                rest = seat_from(position + 1)
                if rest is not None:
                    return {ask.replica: seat, **rest}
                self.house.unseat(room, ask, seat, self._ends)
            return None

        if len(asks) > _DEEPEST_SEARCH:
            return None, False
        found = seat_from(0)
        return found, found is not None or left >= 0

    def _first(self, needs: Needs, location: str, seats: int = 1) -> HostCapacity | None:
        return next(self._candidates(needs, location, seats=seats), None)

    def _candidates(
        self, needs: Needs, location: str, fullest: bool = True, seats: int = 1
    ) -> Iterator[HostCapacity]:
        """The rooms that fit, best fit first."""
        rooms = self.house.candidates(needs, location, self._backfill, fullest)
        return (room for room in rooms if room.fits(needs, self.ports, self._ends, seats))

    # -- taking and giving back --

    def _seat(self, room: HostCapacity, ask: ReplicaRequest) -> Placement:
        return self.house.seat(room, [ask], self.ports, self._spread, self._ends)[0]

    def _seat_all(self, room: HostCapacity, asks: Sequence[ReplicaRequest]) -> Taken:
        seats = self.house.seat(room, asks, self.ports, self._spread, self._ends)
        return [(room, ask, seat) for ask, seat in zip(asks, seats, strict=True)]

    def _undo(self, taken: Taken) -> None:
        for room, ask, seat in reversed(taken):
            self.house.unseat(room, ask, seat, self._ends)

    @staticmethod
    def _write(taken: Taken) -> dict[str, Placement]:
        return {ask.replica: seat for _, ask, seat in taken}

    # -- words --

    def why(self, asks: Sequence[ReplicaRequest], location: str) -> str:
        wanted = Counter(ask.needs for ask in asks)
        where = "" if location in ANYWHERE else f" in {location}"
        needed = ", ".join(f"{count} x {needs_text(needs)}" for needs, count in wanted.items())
        return f"Needs {needed}{where}; {self._free(asks, location)}."

    def _free(self, asks: Sequence[ReplicaRequest], location: str) -> str:
        house = self.house
        groups = [*house.all_groups(CPUS, location), *house.all_groups(CPUS_BESIDE_GPUS, location)]
        if not groups:
            return "no host is there"
        parts = []
        for kind in sorted({ask.needs.accelerator_type for ask in asks if ask.needs.gpus}):
            of_kind = house.all_groups(kind, location)
            total = sum(group.total for group in of_kind)
            most = max((group.most for group in of_kind), default=0)
            unfit = self._out_of_use(kind, location)
            parts.append(f"{total} {kind} free, at most {most} on one host{unfit}")
        total, most = sum(group.total for group in groups), max(group.most for group in groups)
        parts.append(f"{cpu_text(total)} free, at most {max(most, 0):g} on one host")
        if any(ask.needs.memory_mb for ask in asks):
            most_mb = max(room.memory_mb for room in house.there(location))
            parts.append(f"at most {max(most_mb, 0)} MB of memory are free on one host")
        return "; ".join(parts)

    def _out_of_use(self, kind: str, location: str) -> str:
        if not self.house.unfit:
            return ""
        hosts = [room.host for room in self.house.there(location) if room.host.unfit]
        unfit = sum(gpu.accelerator_type == kind and gpu.uuid in h.unfit for h in hosts for gpu in h.gpus)
        return f" ({unfit} {'is' if unfit == 1 else 'are'} quarantined)" if unfit else ""


def _times(needs: Needs, count: int) -> Needs:
    return Needs(needs.cpus * count, needs.memory_mb * count, needs.accelerator_type, needs.gpus * count)


def never_fits(asks: Sequence[ReplicaRequest], hosts: Sequence[HostView], location: str) -> str | None:
    """Why these hosts could not hold the job even if all of them were empty; None when they could, or perhaps could."""
    empty = [
        HostView(host.id, host.name, host.location, host.address, host.cpus, host.memory_mb, host.gpus)
        for host in hosts
    ]
    # As many ports as replicas: ports are no property of hardware.
    placer = Placer(empty, range(1, len(asks) + 1))
    seats, sure = placer._seats(Gang(asks), location, _STEPS_AT_SUBMIT)
    if seats is not None or not sure:
        return None
    return f"Can never be placed, even with every host free. {placer.why(asks, location)}"
