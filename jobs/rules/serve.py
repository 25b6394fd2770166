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
from jobs.rules.hosts import HostView, Seat
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
MOST_LOOKS = 12
NAMED_HOSTS = 3


class Book(Protocol):
    """Who may have how much (quota.py). Who is not among the members has no limit but the project's."""

    @property
    def members(self) -> Mapping[tuple[int, int], object]: ...

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
        self.stopping = [each for each in self.running if each.stopping]
        self.spots = [each for each in self.running if each.spot and not each.stopping]
        self.looks = 0
        self.names = {host.id: host.name for host in ground.hosts}
        # What was asked for before: within quota, over quota, and refused for room.
        self.within: dict[int, set[tuple[int | None, str]]] = {}
        self.over: dict[tuple[int, int | None, str], str] = {}
        self.full: set[tuple[str, str, int]] = set()
        self.moments: list[float] = []
        self.families: set[tuple[str, tuple[str, ...]]] = set()
        # Where somebody waits for whom nobody can make room: what is freed there is theirs first.
        self.stuck: set[tuple[str, str]] = set()

    def offer(self, each: Waiting) -> None:
        # People without a limit of their own are all alike, which spares most questions.
        owner = each.owner if (each.project, each.owner) in self.book.members else None
        within = self.within.get(each.project)
        if within is None or (owner, each.asks) not in within:
            why = self._over_quota(each.project, owner, each.asks)
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
            self.within.pop(each.project, None)
            return
        self.served.reasons[each.job] = blocked
        self.full.add((each.asks, each.location, bisect_left(self.moments, ends)))

    def _over_quota(self, project: int, owner: int | None, asked: str) -> str:
        """What a project holds only grows within a pass: a refusal holds until its end."""
        key = (project, owner, asked)
        if key not in self.over:
            why = self.book.refusal(project, owner, asks.read(asked).gpus)
            if why is None:
                self.within.setdefault(project, set()).add((owner, asked))
                return ""
            self.over[key] = f"Waits for quota: {why}."
        return self.over[key]

    def _place(self, each: Waiting, ends: float, backfill: bool) -> str | None:
        """None when it has its place, else why it has none."""
        wanted = each.read
        spread = each.job + PORTS_APART * each.attempt
        seats = self.placer.find(wanted.each(), each.location, spread, ends, backfill)
        if seats is None:
            return self._blocked(each, ends)
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

    def _blocked(self, each: Waiting, ends: float) -> str:
        family = (each.location, each.read.kinds)
        first = family not in self.families
        if not (first or self.stopping or self._may_ask(each)):
            return BEHIND
        kept = None
        soon = False
        if self.looks < MOST_LOOKS and len(self.served.reserved) < MOST_RESERVED:
            self.looks += 1
            stopped = self._make_room(each, ends)
            kept = self._reservation(each) if first or stopped or self.stopping else None
            soon = kept is not None and self._soon(kept)
        if not soon:
            self.stuck |= self._wants(each)
        lacking = self.placer.why(each.read.each(), each.location) if first or soon else BEHIND
        if kept is None or not (first or soon):
            return lacking
        self.families.add(family)
        self.served.reserved.append(kept)
        insort(self.moments, kept.at)
        self.full.clear()
        self.served.starts[each.job] = whole_minute(kept.at)
        self.placer.house.guard(kept.spare, kept.at)
        return self._explained(lacking, kept, soon)

    def _reservation(self, each: Waiting) -> Reservation | None:
        return reservation(
            self.placer.house,
            self.running,
            self.served.reserved,
            each.job,
            each.read,
            each.location,
            self.now,
            each.timeout_s + AFTER_TIMEOUT_S,
        )

    def _may_ask(self, each: Waiting) -> bool:
        """Not for somebody behind a job that goes on waiting: it would get the room, and all would begin anew."""
        return bool(self.spots) and not each.spot and not self._wants(each) & self.stuck

    def _wants(self, each: Waiting) -> set[tuple[str, str]]:
        return {(each.location, kind) for kind in each.read.kinds or ("",)}

    def _make_room(self, each: Waiting, ends: float) -> bool:
        """Are SPOT jobs stopped for it?"""
        if not self._may_ask(each):
            return False
        house = self.placer.house
        chosen = victims(house, self.spots, self.stopping, each.read, each.location, self.now, ends)
        if not chosen:
            return False
        self.served.preempted += [Preempted(one.job, each.job) for one in chosen]
        gone = {one.job for one in chosen}
        stopping = [one._replace(ends=self.now + self.ground.grace_s, stopping=True) for one in chosen]
        self.spots = [one for one in self.spots if one.job not in gone]
        self.stopping += stopping
        self.running = [one for one in self.running if one.job not in gone]
        for one in stopping:
            insort(self.running, one, key=_by_end)
        return True

    def _soon(self, kept: Reservation) -> bool:
        """Is it only waiting for those that are being stopped?"""
        return any(
            one.ends >= kept.at and any(claim.host in kept.seats for claim in one.claims)
            for one in self.stopping
        )

    def _explained(self, lacking: str, kept: Reservation, soon: bool) -> str:
        text = lacking.removesuffix(".")
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
