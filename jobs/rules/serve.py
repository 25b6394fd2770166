"""One decision about the whole queue: who gets which place, who has to make room, and why the others wait.

The jobs are offered in their order (order.py). The first that has no room, of those that want the same kind of GPUs in
the same place, gets a reservation (backfill.py); those behind it get what does not delay it. Before it waits, SPOT jobs
may be asked to make room (preempt.py). A job whose project or owner is over quota holds nobody up.

Jobs that ask for the same are searched a place for once: within a pass room only shrinks. So a pass over n waiting jobs
grows with n log n, for their order, and is over soon where nothing is free.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from jobs.rules import asks
from jobs.rules.backfill import Reservation, reservation
from jobs.rules.fairness import Share
from jobs.rules.hosts import HostView, Lacking, Seat
from jobs.rules.moments import moment, whole_minute
from jobs.rules.order import Waiting, in_order
from jobs.rules.placement import Placer
from jobs.rules.preempt import victims
from jobs.rules.running import Claim, Running

BEHIND = "Waits for its turn: earlier jobs wait for the same hosts."
MAKING_ROOM = "Its place is being made free"
# How far from the ports of one attempt those of the next are tried: a stranger may have taken a row of them.
PORTS_APART = 101
# After its timeout a job may take this long to be over: the stop, its grace, the proof.
AFTER_TIMEOUT_S = 120.0
MOST_PLACED = 200
MOST_RESERVED = 8
# How many searches for victims and for reservations one pass may make.
MOST_LOOKS = 16
NAMED_HOSTS = 3


class Book(Protocol):
    """Who may have how much (quota.py)."""

    def refusal(self, project_id: int, owner_id: int | None, gpus: Mapping[str, int]) -> str | None: ...

    def take(self, project_id: int, owner_id: int | None, gpus: Mapping[str, int]) -> None: ...


@dataclass(frozen=True, slots=True)
class Ground:
    """What there is: hosts, and what runs on them. `held`: the GPUs that each project holds."""

    hosts: Sequence[HostView]
    ports: range
    running: Sequence[Running] = ()
    shares: Mapping[int, Share] = field(default_factory=dict)
    held: Mapping[int, float] = field(default_factory=dict)
    grace_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Preempted:
    """A SPOT job that is to make room for another."""

    job: int
    by: int


@dataclass(slots=True)
class Served:
    """The decision. `starts`: when a job starts at the latest, where that is known. `more`: decide again at once."""

    placed: list[tuple[Waiting, tuple[Seat, ...]]] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    starts: dict[int, float] = field(default_factory=dict)
    preempted: list[Preempted] = field(default_factory=list)
    reserved: list[Reservation] = field(default_factory=list)
    over_quota: set[int] = field(default_factory=set)
    more: bool = False


def serve(
    ground: Ground, waiting: Sequence[Waiting], book: Book, now: float, most_placed: int = MOST_PLACED
) -> Served:
    server = _Server(ground, book, now)
    for each in in_order(waiting, ground.shares, ground.held):
        if len(server.served.placed) >= most_placed:
            server.served.more = True
            break
        server.offer(each)
    return server.served


class _Server:
    def __init__(self, ground: Ground, book: Book, now: float) -> None:
        self.ground, self.book, self.now = ground, book, now
        self.served = Served()
        self.placer = Placer(ground.hosts, ground.ports)
        self.running = sorted(ground.running, key=_by_end)
        self.making_room = any(each.stopping for each in self.running)
        self.spot = any(each.spot and not each.stopping for each in self.running)
        self.looks = 0
        self.names = {host.id: host.name for host in ground.hosts}
        # What was asked for before: within quota, over quota, and refused for room.
        self.within: set[tuple[int, int | None, str]] = set()
        self.over: dict[tuple[int, int | None, str], str] = {}
        self.full: set[tuple[str, str, int]] = set()
        self.moments: list[float] = []
        self.families: set[tuple[str, tuple[str, ...]]] = set()

    def offer(self, each: Waiting) -> None:
        quota = (each.project, each.owner, each.asks)
        if quota not in self.within:
            why = self._over_quota(quota)
            if why:
                self.served.reasons[each.job] = why
                self.served.over_quota.add(each.job)
                return
        ends = self.now + each.timeout_s + AFTER_TIMEOUT_S
        # How many of the reservations it would outlive.
        outlives = bisect_left(self.moments, ends)
        key = (each.asks, each.location, outlives)
        if key in self.full:
            self.served.reasons[each.job] = BEHIND
            return
        blocked = self._place(each, ends, backfill=bool(self.moments) and not outlives)
        if blocked is None:
            self.within.clear()
            return
        self.served.reasons[each.job] = blocked
        self.full.add((each.asks, each.location, bisect_left(self.moments, ends)))

    def _over_quota(self, key: tuple[int, int | None, str]) -> str:
        """What a project holds only grows within a pass: a refusal holds until its end."""
        if key not in self.over:
            project, owner, text = key
            why = self.book.refusal(project, owner, asks.read(text).gpus)
            if why is None:
                self.within.add(key)
                return ""
            self.over[key] = f"Waits for quota: {why}."
        return self.over[key]

    def _place(self, each: Waiting, ends: float, backfill: bool) -> str | None:
        """None when it has its place, else why it has none."""
        wanted = each.read
        spread = each.job + PORTS_APART * each.attempt
        seats = self.placer.place(wanted.each(), each.location, spread, ends, backfill)
        if isinstance(seats, Lacking):
            return self._blocked(each, ends, seats)
        self.book.take(each.project, each.owner, wanted.gpus)
        self.served.placed.append((each, seats))
        needs = {ask.replica: ask.needs for ask in wanted.each()}
        claims = tuple(
            Claim(seat.host_id, of.cpus, of.memory_mb, of.accelerator_type, of.gpus)
            for seat in seats
            for of in (needs[seat.replica],)
        )
        insort(self.running, Running(each.job, ends, claims, each.spot, self.now), key=_by_end)
        return None

    # -- blocked --

    def _blocked(self, each: Waiting, ends: float, lacking: Lacking) -> str:
        family = (each.location, each.read.kinds)
        first = family not in self.families
        if self.looks >= MOST_LOOKS or len(self.served.reserved) >= MOST_RESERVED:
            return lacking.text if first else BEHIND
        stopped = self._make_room(each, ends)
        if not (first or stopped or self.making_room):
            return BEHIND
        self.looks += 1
        kept = reservation(
            self.placer.house,
            self.running,
            self.served.reserved,
            each.job,
            each.read,
            each.location,
            self.now,
            each.timeout_s + AFTER_TIMEOUT_S,
        )
        soon = kept is not None and self._soon(kept)
        if kept is None or not (first or soon):
            return lacking.text if first else BEHIND
        self.families.add(family)
        self.served.reserved.append(kept)
        insort(self.moments, kept.at)
        self.full.clear()
        self.served.starts[each.job] = whole_minute(kept.at)
        self.placer.house.guard(kept.spare, kept.at)
        return self._explained(lacking, kept, soon)

    def _make_room(self, each: Waiting, ends: float) -> bool:
        """Are SPOT jobs stopped for it?"""
        if not self.spot or each.spot:
            return False
        chosen = victims(self.placer.house, self.running, each.read, each.location, self.now, ends)
        self.served.preempted += [Preempted(one.job, each.job) for one in chosen]
        gone = self.now + self.ground.grace_s
        stopped = {one.job for one in chosen}
        if stopped:
            self.running = [
                one._replace(ends=gone, stopping=True) if one.job in stopped else one for one in self.running
            ]
            self.running.sort(key=_by_end)
        return bool(stopped)

    def _soon(self, kept: Reservation) -> bool:
        """Is it only waiting for those that are being stopped?"""
        return any(
            one.stopping and one.ends >= kept.at and any(claim.host in kept.seats for claim in one.claims)
            for one in self.running
        )

    def _explained(self, lacking: Lacking, kept: Reservation, soon: bool) -> str:
        text = lacking.text.removesuffix(".")
        hosts = f"{kept.open_now} {'host has' if kept.open_now == 1 else 'hosts have'} room now"
        if soon:
            return f"{text}; {hosts}. {MAKING_ROOM}: others are being stopped."
        names = [self.names[host] for host in kept.last]
        if not names:
            return f"{text}; {hosts}."
        more = len(names) - NAMED_HOSTS
        told = ", ".join(names[:NAMED_HOSTS]) + (f" and {more} more" if more > 0 else "")
        frees = "frees" if len(names) == 1 else "free"
        at = moment(kept.at, self.now)
        return f"{text}; {hosts}; {told} {frees} by {at}. It starts by then at the latest."


def _by_end(running: Running) -> tuple[float, int]:
    return running.ends, running.job
