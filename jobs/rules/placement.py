"""Gangs onto hosts: every replica of a job gets its place at once, or none does, with the reason in words.

A `Placer` is made for one pass over the waiting jobs. It keeps what is free in buckets (hosts by the number of their
free GPUs of a type, or of free CPUs), so that a place is found without looking at every host, and remembers the shapes
that it refused: within a pass room only shrinks, so the same shape is refused again without a search. A pass over n
jobs grows with n, not with n times the hosts.

Packing is best fit: the host on which the least is left over, so that one is filled before the next is opened, and jobs
without GPUs go to hosts without GPUs first. All GPUs of a replica are on one host.

How exact it is: a gang of equal replicas is placed whenever it can be. A gang of unequal ones is tried largest first by
GPUs, then by CPUs, then by a search that is given up after some thousand steps; a gang so intricate may be told to wait
although it would fit. `never_fits` does not take that for an answer: it refuses only what surely never fits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from jobs.rules.machines import Needs

ANYWHERE = ("", "any")
# How many rooms a search may look at: a pass over the queue must stay quick, a submit may think a little.
_STEPS_IN_A_PASS = 2_000
_STEPS_AT_SUBMIT = 50_000
_DEEPEST_SEARCH = 200
_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class GpuView:
    uuid: str
    accelerator_type: str
    index: int = 0


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
    unfit: frozenset[str] = frozenset()  # of used_gpus, those that no run holds: kept out of use


@dataclass(frozen=True, slots=True)
class Ask:
    """A replica that wants a place."""

    replica: str
    needs: Needs


@dataclass(frozen=True, slots=True)
class Seat:
    """The place of a replica: what its run will claim."""

    replica: str
    host_id: int
    gpus: tuple[str, ...]
    port: int


@dataclass(frozen=True, slots=True)
class Lacking:
    """No place now. The text says what is needed and what is free."""

    text: str


class _Room:
    """What is still free on one host."""

    __slots__ = ("cpus", "gpus", "host", "memory_mb", "ports")

    def __init__(self, host: HostView) -> None:
        self.host = host
        self.cpus = host.cpus - host.used_cpus
        self.memory_mb = host.memory_mb - host.used_memory_mb
        self.ports = set(host.used_ports)
        self.gpus: dict[str, list[tuple[int, str]]] = {}
        for gpu in host.gpus:
            free = self.gpus.setdefault(gpu.accelerator_type, [])
            if gpu.uuid not in host.used_gpus:
                free.append((gpu.index, gpu.uuid))
        for free in self.gpus.values():
            free.sort()

    def fits(self, needs: Needs, ports: range) -> bool:
        return (
            self.cpus + _EPSILON >= needs.cpus
            and self.memory_mb >= needs.memory_mb
            and len(self.gpus.get(needs.accelerator_type, ())) >= needs.gpus
            and len(self.ports) < len(ports)
        )

    @property
    def shape(self) -> tuple[object, ...]:
        """Rooms of one shape are interchangeable for a search."""
        return (
            self.cpus,
            self.memory_mb,
            tuple(sorted((name, len(free)) for name, free in self.gpus.items())),
        )


class _Buckets:
    """The rooms of one location by how much of one thing is free in them."""

    def __init__(self) -> None:
        self._levels: dict[int, dict[int, _Room]] = {}

    def put(self, level: int, room: _Room) -> None:
        self._levels.setdefault(level, {})[room.host.id] = room

    def take(self, level: int, room: _Room) -> None:
        del self._levels[level][room.host.id]
        if not self._levels[level]:
            del self._levels[level]

    def levels(self, least: int) -> list[int]:
        return sorted(level for level in self._levels if level >= least)

    def at(self, level: int) -> Iterable[_Room]:
        return self._levels.get(level, {}).values()

    @property
    def most(self) -> int:
        return max(self._levels, default=0)

    @property
    def total(self) -> int:
        return sum(level * len(rooms) for level, rooms in self._levels.items() if level > 0)


# The buckets of free CPUs are kept apart for hosts without and with GPUs.
_CPUS, _CPUS_BESIDE_GPUS = "cpus", "cpus of GPU hosts"


class Placer:
    """Places jobs one after the other; each takes its room from those that follow."""

    def __init__(self, hosts: Sequence[HostView], port_range: range) -> None:
        self._ports = port_range
        self._spread = 0
        self._buckets: dict[tuple[str, str], _Buckets] = {}
        self._refused: dict[tuple[object, ...], Lacking] = {}
        self._rooms = [_Room(host) for host in hosts]
        self._locations = list(dict.fromkeys(host.location for host in hosts))
        for room in self._rooms:
            self._file(room)

    def place(self, asks: Sequence[Ask], location: str, spread: int = 0) -> tuple[Seat, ...] | Lacking:
        """Seats for all, in the order of the asks, or why there are none. `spread` varies the port tried first."""
        shape = (location, frozenset(Counter(ask.needs for ask in asks).items()))
        if shape in self._refused:
            return self._refused[shape]
        self._spread = spread
        seats, _ = self._seats(asks, location, _STEPS_IN_A_PASS)
        if seats is None:
            self._refused[shape] = lacking = Lacking(self._why(asks, location))
            return lacking
        return seats

    # -- finding --

    def _seats(self, asks: Sequence[Ask], location: str, steps: int) -> tuple[tuple[Seat, ...] | None, bool]:
        """Seats if they were found; else None, and whether it is sure that there are none."""
        by_gpus = sorted(asks, key=lambda ask: (-ask.needs.gpus, -ask.needs.cpus, -ask.needs.memory_mb))
        by_cpus = sorted(asks, key=lambda ask: (-ask.needs.cpus, -ask.needs.memory_mb, -ask.needs.gpus))
        mixed = len({ask.needs for ask in asks}) > 1
        found, sure = self._one_by_one(by_gpus, location), True
        if found is None and mixed:
            found = self._one_by_one(by_cpus, location)
        if found is None and mixed and all(self._first(ask.needs, location) for ask in asks):
            found, sure = self._search(by_gpus, location, steps)
        if found is None:
            return None, sure
        return tuple(found[ask.replica] for ask in asks), True

    def _one_by_one(self, asks: Sequence[Ask], location: str) -> dict[str, Seat] | None:
        taken: list[tuple[_Room, Ask, Seat]] = []
        for ask in asks:
            room = self._first(ask.needs, location)
            if room is None:
                for each in reversed(taken):
                    self._give(*each)
                return None
            taken.append((room, ask, self._take(room, ask)))
        return {ask.replica: seat for _, ask, seat in taken}

    def _search(self, asks: Sequence[Ask], location: str, steps: int) -> tuple[dict[str, Seat] | None, bool]:
        """Every way to seat unequal asks, one room of a shape for all of that shape, until the steps are used up."""
        left = steps

        def seat_from(position: int) -> dict[str, Seat] | None:
            nonlocal left
            if position == len(asks):
                return {}
            ask = asks[position]
            shapes: dict[tuple[object, ...], _Room] = {}
            for room in self._candidates(ask.needs, location):
                left -= 1
                if left < 0:
                    return None
                shapes.setdefault(room.shape, room)
            for room in shapes.values():
                seat = self._take(room, ask)
                rest = seat_from(position + 1)
                if rest is not None:
                    return {ask.replica: seat, **rest}
                self._give(room, ask, seat)
            return None

        if len(asks) > _DEEPEST_SEARCH:
            return None, False
        found = seat_from(0)
        return found, found is not None or left >= 0

    def _first(self, needs: Needs, location: str) -> _Room | None:
        return next(self._candidates(needs, location), None)

    def _candidates(self, needs: Needs, location: str) -> Iterator[_Room]:
        """The rooms that fit, best fit first."""
        kinds = (needs.accelerator_type,) if needs.gpus else (_CPUS, _CPUS_BESIDE_GPUS)
        least = needs.gpus or int(needs.cpus)
        for kind in kinds:
            groups = self._groups(kind, location)
            for level in sorted({level for group in groups for level in group.levels(least)}):
                for group in groups:
                    yield from (room for room in group.at(level) if room.fits(needs, self._ports))

    def _groups(self, kind: str, location: str) -> list[_Buckets]:
        locations = self._locations if location in ANYWHERE else [location]
        groups = (self._buckets.get((place, kind)) for place in locations)
        return [group for group in groups if group is not None]

    # -- taking and giving back --

    def _take(self, room: _Room, ask: Ask) -> Seat:
        needs = ask.needs
        gpus = room.gpus.get(needs.accelerator_type, [])[: needs.gpus]
        seat = Seat(ask.replica, room.host.id, tuple(uuid for _, uuid in gpus), self._port(room))

        def change() -> None:
            room.cpus -= needs.cpus
            room.memory_mb -= needs.memory_mb
            room.ports.add(seat.port)
            if needs.gpus:
                del room.gpus[needs.accelerator_type][: needs.gpus]

        self._refile(room, change)
        return seat

    def _give(self, room: _Room, ask: Ask, seat: Seat) -> None:
        needs = ask.needs

        def change() -> None:
            room.cpus += needs.cpus
            room.memory_mb += needs.memory_mb
            room.ports.discard(seat.port)
            if needs.gpus:
                index = {gpu.uuid: gpu.index for gpu in room.host.gpus}
                free = room.gpus[needs.accelerator_type]
                free.extend((index[uuid], uuid) for uuid in seat.gpus)
                free.sort()

        self._refile(room, change)

    def _port(self, room: _Room) -> int:
        count = len(self._ports)
        start = self._spread % count
        return next(
            port for step in range(count) if (port := self._ports[(start + step) % count]) not in room.ports
        )

    def _refile(self, room: _Room, change: Callable[[], None]) -> None:
        for kind, level in self._levels(room):
            self._buckets[room.host.location, kind].take(level, room)
        change()
        self._file(room)

    def _file(self, room: _Room) -> None:
        for kind, level in self._levels(room):
            self._buckets.setdefault((room.host.location, kind), _Buckets()).put(level, room)

    @staticmethod
    def _levels(room: _Room) -> list[tuple[str, int]]:
        cpus = (_CPUS_BESIDE_GPUS if room.gpus else _CPUS, int(room.cpus + _EPSILON))
        return [cpus, *((kind, len(free)) for kind, free in room.gpus.items())]

    # -- words --

    def _why(self, asks: Sequence[Ask], location: str) -> str:
        wanted = Counter(ask.needs for ask in asks)
        where = "" if location in ANYWHERE else f" in {location}"
        needed = ", ".join(f"{count} x {words(needs)}" for needs, count in wanted.items())
        return f"Needs {needed}{where}; {self._free(asks, location)}."

    def _free(self, asks: Sequence[Ask], location: str) -> str:
        if not self._groups(_CPUS, location) and not self._groups(_CPUS_BESIDE_GPUS, location):
            return "no host is there"
        kinds = sorted({ask.needs.accelerator_type for ask in asks if ask.needs.gpus})
        parts = []
        for kind in kinds:
            groups = self._groups(kind, location)
            total, most = (
                sum(group.total for group in groups),
                max((group.most for group in groups), default=0),
            )
            parts.append(
                f"free are {total} {kind}, at most {most} on one host{self._out_of_use(kind, location)}"
            )
        groups = [*self._groups(_CPUS, location), *self._groups(_CPUS_BESIDE_GPUS, location)]
        most = max(group.most for group in groups)
        parts.append(
            f"free are {sum(group.total for group in groups)} CPUs, at most {max(most, 0)} on one host"
        )
        if any(ask.needs.memory_mb for ask in asks):
            most_mb = max(
                room.memory_mb for room in self._rooms if location in ("", "any", room.host.location)
            )
            parts.append(f"at most {max(most_mb, 0)} MB of memory are free on one host")
        return "; ".join(parts)

    def _out_of_use(self, kind: str, location: str) -> str:
        rooms = [room.host for room in self._rooms if location in (*ANYWHERE, room.host.location)]
        unfit = sum(gpu.accelerator_type == kind and gpu.uuid in h.unfit for h in rooms for gpu in h.gpus)
        return f" ({unfit} {'is' if unfit == 1 else 'are'} quarantined)" if unfit else ""


def never_fits(asks: Sequence[Ask], hosts: Sequence[HostView], location: str) -> str | None:
    """Why these hosts could not hold the job even if all of them were empty; None when they could, or perhaps could."""
    empty = [
        HostView(host.id, host.name, host.location, host.address, host.cpus, host.memory_mb, host.gpus)
        for host in hosts
    ]
    # As many ports as replicas: ports are no property of hardware.
    placer = Placer(empty, range(1, len(asks) + 1))
    seats, sure = placer._seats(asks, location, _STEPS_AT_SUBMIT)
    if seats is not None or not sure:
        return None
    return f"Can never be placed, even with every host free. {placer._why(asks, location)}"


def words(needs: Needs) -> str:
    """`8 NVIDIA_H100_80GB with 208 CPUs and 1916928 MB`."""
    cpus = f"{needs.cpus:g} CPU{'' if needs.cpus == 1 else 's'}"
    memory = f" and {needs.memory_mb} MB" if needs.memory_mb else ""
    return f"{needs.gpus} {needs.accelerator_type} with {cpus}{memory}" if needs.gpus else f"{cpus}{memory}"
