"""One decision about the whole queue: who gets which place, who has to make room, and why the others wait.

The jobs are offered in their order (order.py). The first that has no room, of those that want the same kind of GPUs in
the same place, gets a reservation (backfill.py); those behind it get what does not delay it. Before it waits, SPOT jobs
may be asked to make room (preempt.py). A job whose project or owner is over quota holds up nobody else's; of its own
project, those behind it get what does not delay it either (pledges.py).

Searches for reservations cost what there is to look at. The first of a kind has searches of its own; when a pass has
looked at as much as it may, the hosts of a kind whose first job was not looked at are closed to those behind it, which
delays nobody who is before them and lasts for this pass.

Jobs that ask for the same are searched a place for once: within a pass room only shrinks. So a pass over n waiting jobs
grows with n log n, for their order, and is over soon where nothing is free.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jobs.rules import asks
from jobs.rules.backfill import Reservation, reservation
from jobs.rules.fairness import Share
from jobs.rules.hosts import HostView, Seat
from jobs.rules.moments import moment, whole_minute
from jobs.rules.order import Waiting, in_order
from jobs.rules.placement import Placer
from jobs.rules.pledges import Pledges
from jobs.rules.preempt import victims
from jobs.rules.quota import Book
from jobs.rules.running import Claim, Occupants, Running

BEHIND = "Waits for its turn: earlier jobs wait for the same hosts."
KEPT = "Waits for its turn: what it needs of the quota is kept for an earlier job."
MAKING_ROOM = "Its place is being made free"
# How far from the ports of one attempt those of the next are tried: a stranger may have taken a row of them.
PORTS_APART = 101
# After its timeout a job may take this long to be over: the stop, its grace, the proof.
AFTER_TIMEOUT_S = 120.0
MOST_PLACED = 200
# So many hosts and jobs on them may the searches of a pass look at; and so many those for jobs behind the first.
MOST_WORK, MOST_WORK_BEHIND = 60_000, 30_000
# On a very large floor more: so many looks at all of it.
MOST_WHOLE_LOOKS = 8
MOST_LOOKS_BEHIND = 12
# So many jobs of a kind of which nobody can know when they start (a host that they need is away) are looked at.
MOST_UNKNOWN = 4
NAMED_HOSTS = 3


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


# What is wanted where: the jobs of a family wait for the same GPUs.
Family = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class _Area:
    """The hosts on which a job may find a place, when somebody will have one there, and what was refused for room."""

    hosts: frozenset[int]
    moments: list[float]
    full: set[tuple[str, int]] = field(default_factory=set)


class _Server:
    def __init__(self, ground: Ground, book: Book, now: float) -> None:
        self.ground, self.book, self.now = ground, book, now
        self.served = Served()
        self.placer = Placer(ground.hosts, ground.ports)
        self.occupants = Occupants(ground.running)
        self.pledges = Pledges(book, self.occupants)
        self.stopping = [each for each in self.occupants.all if each.stopping]
        self.spots = {each.job for each in self.occupants.all if each.spot and not each.stopping}
        self.work = 0
        self.most_work = max(MOST_WORK, MOST_WHOLE_LOOKS * (len(ground.hosts) + len(self.occupants.all)))
        self.looks_behind = 0
        self.unknown: dict[Family, int] = {}
        self.names = {host.id: host.name for host in ground.hosts}
        # What was asked for before: within quota, and over quota.
        self.within: dict[int, set[tuple[int | None, str]]] = {}
        self.over: dict[tuple[int, int | None, str], str] = {}
        # Whether a limit says anything about jobs of these kinds of GPUs.
        self.limited: dict[tuple[int, int | None, tuple[str, ...]], bool] = {}
        self.areas: dict[Family, _Area] = {}
        self.area_of: dict[tuple[str, str], _Area] = {}
        self.families: set[Family] = set()
        # Where somebody waits for whom nobody can make room: what is freed there is theirs first.
        self.stuck: set[tuple[str, str]] = set()

    def offer(self, each: Waiting) -> None:
        """Most of a long queue leaves this at the second `return`."""
        job, project, owner, location, asked, timeout_s, *_ = each
        # People without a limit of their own are all alike, which spares most questions.
        if owner is not None and (project, owner) not in self.book.members:
            owner = None
        within = self.within.get(project)
        if within is None or (owner, asked) not in within:
            why = self._over_quota(project, owner, asked)
            if why:
                self.served.reasons[job] = why
                self.served.over_quota.add(job)
                return
        ends = self.now + timeout_s + AFTER_TIMEOUT_S
        area = self.area_of.get((asked, location)) or self._area(each)
        # How many of the reservations it would outlive.
        outlives = bisect_left(area.moments, ends)
        if (asked, outlives) in area.full:
            self.served.reasons[job] = BEHIND
            return
        if self.pledges.kept(project, owner, each.read.gpus, ends):
            self.served.reasons[each.job] = KEPT
            self.served.over_quota.add(each.job)
            return
        blocked = self._place(each, ends, backfill=bool(area.moments) and not outlives)
        if blocked is None:
            self.within.pop(each.project, None)
            return
        self.served.reasons[job] = blocked
        area.full.add((asked, bisect_left(area.moments, ends)))

    def _area(self, each: Waiting) -> _Area:
        short = (each.asks, each.location)
        area = self.area_of.get(short)
        if area is None:
            area = self.area_of[short] = self._new_area(each)
        return area

    def _new_area(self, each: Waiting) -> _Area:
        key = (each.location, each.read.hosts_with)
        if key not in self.areas:
            hosts = self.placer.house.having(each.read.hosts_with, each.location)
            at = [one.at for one in self.served.reserved if not hosts.isdisjoint(one.seats)]
            self.areas[key] = _Area(hosts, sorted(at))
        return self.areas[key]

    def _over_quota(self, project: int, owner: int | None, asked: str) -> str:
        """What a project holds only grows within a pass: a refusal holds until its end."""
        key = (project, owner, asked)
        if key not in self.over:
            read = asks.read(asked)
            of_kinds = (project, owner, read.kinds)
            if of_kinds not in self.limited:
                self.limited[of_kinds] = self.book.concerns(project, owner, read.gpus)
            why = self.book.refusal(project, owner, read.gpus) if self.limited[of_kinds] else None
            if why is None:
                if project not in self.within:
                    self.within[project] = set()
                self.within[project].add((owner, asked))
                return ""
            self.pledges.wait(project, owner, asks.read(asked).gpus)
            self.over[key] = f"Waits for quota: {why}."
        return self.over[key]

    def _place(self, each: Waiting, ends: float, backfill: bool) -> str | None:
        """None when it has its place, else why it has none."""
        wanted = each.read
        spread = each.job + PORTS_APART * each.attempt
        seats = self.placer.find(wanted.gang, each.location, spread, ends, backfill)
        if seats is None:
            return self._blocked(each, ends)
        self.book.take(each.project, each.owner, wanted.gpus)
        self.pledges.take(each.project, each.owner, wanted.gpus, ends)
        self.served.placed.append((each, seats))
        needs = {ask.replica: ask.needs for ask in wanted.each()}
        claims = tuple(
            Claim(seat.host_id, of.cpus, of.memory_mb, of.accelerator_type, of.gpus)
            for seat in seats
            for of in (needs[seat.replica],)
        )
        self.occupants.add(
            Running(each.job, ends, claims, each.spot, self.now, False, each.project, each.owner)
        )
        return None

    # -- blocked --

    def _blocked(self, each: Waiting, ends: float) -> str:
        family = (each.location, each.read.kinds)
        first = family not in self.families
        if not (first or self.stopping or self._may_ask(each)):
            return BEHIND
        kept = None
        soon = False
        if self._may_look(each, family, first):
            stopped = self._make_room(each, ends)
            kept = self._reservation(each) if first or stopped or self.stopping else None
            soon = kept is not None and self._soon(kept)
        if not soon:
            self.stuck |= self._wants(each)
        lacking = self.placer.why(each.read.each(), each.location) if first or soon else BEHIND
        if kept is None or not (first or soon):
            self._not_known(each, family, first)
            return lacking
        self.families.add(family)
        self._keep(each, kept)
        return self._explained(lacking, kept, soon)

    def _may_look(self, each: Waiting, family: Family, first: bool) -> bool:
        """Counts what the search may have to look at."""
        most = self.most_work if first else MOST_WORK_BEHIND
        if self.work >= most or not (first or self.looks_behind < MOST_LOOKS_BEHIND):
            return False
        self.looks_behind += not first
        if first:
            self.unknown[family] = self.unknown.get(family, 0) + 1
        hosts = self._area(each).hosts
        self.work += len(hosts) + len(self.occupants.on(hosts))
        return True

    def _not_known(self, each: Waiting, family: Family, first: bool) -> None:
        """It may be the next one whose start can be known; or there was no time to look, and nobody may be first."""
        looked = self.unknown.get(family, 0)
        if not first or 0 < looked < MOST_UNKNOWN:
            return
        self.families.add(family)
        if not looked:
            self.placer.house.close(self._area(each).hosts, self.now)

    def _keep(self, each: Waiting, kept: Reservation) -> None:
        """From now on those who come behind get only what does not delay it."""
        self.served.reserved.append(kept)
        for area in self.areas.values():
            if not area.hosts.isdisjoint(kept.seats):
                insort(area.moments, kept.at)
                area.full.clear()
        self.served.starts[each.job] = whole_minute(kept.at)
        self.placer.house.guard(kept.spare, kept.at)
        self.pledges.reserve(each.project, each.owner, each.read.gpus, kept.at)

    def _reservation(self, each: Waiting) -> Reservation | None:
        hosts = self._area(each).hosts
        return reservation(
            self.placer.house,
            self.occupants,
            [one for one in self.served.reserved if not hosts.isdisjoint(one.seats)],
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
        there = self.occupants.on(self._area(each).hosts)
        spots = [one for one in there if one.job in self.spots]
        chosen = victims(house, spots, self.stopping, each.read, each.location, self.now, ends)
        if not chosen:
            return False
        self.served.preempted += [Preempted(one.job, each.job) for one in chosen]
        stopping = [one._replace(ends=self.now + self.ground.grace_s, stopping=True) for one in chosen]
        self.spots -= {one.job for one in chosen}
        self.stopping += stopping
        for before, after in zip(chosen, stopping, strict=True):
            self.occupants.remove(before)
            self.occupants.add(after)
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
        return f"{text}; {hosts}; {told} {frees} by {at}."
