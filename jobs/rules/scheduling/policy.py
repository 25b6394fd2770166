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

from jobs.rules.scheduling import resource_requests
from jobs.rules.scheduling.backfill import Reservation, find_reservation
from jobs.rules.scheduling.fairness import Share
from jobs.rules.scheduling.order import WaitingJob, in_order
from jobs.rules.scheduling.placement import Placer
from jobs.rules.scheduling.preemption import choose_victims
from jobs.rules.scheduling.quota import QuotaLedger
from jobs.rules.scheduling.quota_reservations import QuotaReservations
from jobs.rules.scheduling.running_jobs import HostClaim, RunningJob, RunningJobs
from jobs.rules.scheduling.time_text import moment_text, whole_minute
from jobs.rules.scheduling.views import HostView, Placement
from jobs.rules.scheduling.wait_reasons import Wait, WaitReason

BEHIND = Wait(WaitReason.TURN, "Waits for its turn: earlier jobs wait for the same hosts.")
KEPT = Wait(
    WaitReason.QUOTA_RESERVED,
    "Waits for its turn: what it needs of the quota is kept for an earlier job.",
)
MAKING_ROOM = "Its place is being made free"
# How far from the ports of one attempt those of the next are tried: a stranger may have taken a row of them.
PORTS_APART = 101
# After its timeout a job may take this long to be over: the stop, its grace, the proof.
AFTER_TIMEOUT_S = 120.0
MAX_PLACED = 200
# So many hosts and jobs on them may the searches of a pass look at; and so many those for jobs behind the first.
MAX_WORK, MAX_WORK_BEHIND = 60_000, 30_000
# On a very large floor more: so many looks at all of it.
MAX_WHOLE_LOOKS = 8
MAX_LOOKS_BEHIND = 12
# So many jobs of a kind of which nobody can know when they start (a host that they need is away) are looked at.
MAX_UNKNOWN = 4
NAMED_HOSTS = 3


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What there is: hosts, and what runs on them. `held`: the GPUs that each project holds."""

    hosts: Sequence[HostView]
    ports: range
    running: Sequence[RunningJob] = ()
    shares: Mapping[int, Share] = field(default_factory=dict)
    held: Mapping[int, float] = field(default_factory=dict)
    grace_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Preemption:
    """A SPOT job that is to make room for another."""

    job: int
    by: int


@dataclass(slots=True)
class QueueDecision:
    """The decision. `starts`: when a job starts at the latest, where that is known. `more`: decide again at once."""

    placed: list[tuple[WaitingJob, tuple[Placement, ...]]] = field(default_factory=list)
    waits: dict[int, Wait] = field(default_factory=dict)
    starts: dict[int, float] = field(default_factory=dict)
    preempted: list[Preemption] = field(default_factory=list)
    reserved: list[Reservation] = field(default_factory=list)
    over_quota: set[int] = field(default_factory=set)
    more: bool = False


def decide_queue(
    ground: ClusterView,
    waiting: Sequence[WaitingJob],
    book: QuotaLedger,
    now: float,
    most_placed: int = MAX_PLACED,
) -> QueueDecision:
    server = _QueueDecider(ground, book, now)
    for each in in_order(waiting, ground.shares, ground.held):
        if len(server.served.placed) >= most_placed:
            server.served.more = True
            break
        server.offer(each)
    return server.served


# What is wanted where: the jobs of a family wait for the same GPUs.
HostFamily = tuple[str, tuple[str, ...]]


class _HostArea:
    """The hosts on which a job may find a place, when somebody will have one there, and what was refused for room.

    `full`: what was asked for and had no place, by how many of these moments it would outlive.
    """

    __slots__ = ("full", "hosts", "moments")

    def __init__(self, hosts: frozenset[int], moments: list[float]) -> None:
        self.hosts, self.moments = hosts, moments
        self.full: list[set[_RequestMemory]] = [set() for _ in range(len(moments) + 1)]

    def expect(self, at: float) -> None:
        """One moment more."""
        insort(self.moments, at)
        self.full = [set() for _ in range(len(self.moments) + 1)]


class _RequestMemory:
    """What is asked for by jobs that ask for the same."""

    __slots__ = ("areas", "read")

    def __init__(self, asked: str) -> None:
        self.read = resource_requests.decode_request(asked)
        self.areas: dict[str, _HostArea] = {}


class _QuotaMemory:
    """What those whose jobs count against the same limits were told: what is within quota, and why something is not.

    `free`: no limit says anything about jobs that need other GPUs than `limited`.
    """

    __slots__ = ("free", "limited", "over", "owner", "project", "within")

    def __init__(self, book: QuotaLedger, project: int, owner: int | None) -> None:
        self.project, self.owner = project, owner
        limits = [account.limits for account in book.accounts(project, owner)]
        self.free = not any(each.concern({}) for each in limits)
        self.limited = frozenset(kind for each in limits for kind in each.gpus)
        self.within: set[_RequestMemory] = set()
        # What a project holds only grows within a pass: a refusal holds until its end.
        self.over: dict[_RequestMemory, Wait] = {}

    def unlimited(self, want: _RequestMemory) -> bool:
        return self.free and self.limited.isdisjoint(want.read.kinds)


class _QueueDecider:
    def __init__(self, ground: ClusterView, book: QuotaLedger, now: float) -> None:
        self.ground, self.book, self.now = ground, book, now
        self.served = QueueDecision()
        self.placer = Placer(ground.hosts, ground.ports)
        self.occupants = RunningJobs(ground.running)
        self.pledges = QuotaReservations(book, self.occupants)
        self.stopping = any(each.stopping for each in self.occupants.all)
        self.spots = {each.job for each in self.occupants.all if each.spot and not each.stopping}
        self.work = 0
        self.most_work = max(MAX_WORK, MAX_WHOLE_LOOKS * (len(ground.hosts) + len(self.occupants.all)))
        self.looks_behind = 0
        self.unknown: dict[HostFamily, int] = {}
        self.names = {host.id: host.name for host in ground.hosts}
        self.wants: dict[str, _RequestMemory] = {}
        self.purses: dict[tuple[int, int | None], _QuotaMemory] = {}
        self.areas: dict[HostFamily, _HostArea] = {}
        self.families: set[HostFamily] = set()
        # Where somebody waits for whom nobody can make room: what is freed there is theirs first.
        self.stuck: set[tuple[str, str]] = set()

    def offer(self, each: WaitingJob) -> None:
        """Most of a long queue leaves this at the second `return`."""
        job, project, owner, location, asked, timeout_s, *_ = each
        want = self.wants.get(asked) or self._want(asked)
        purse = self.purses.get((project, owner)) or self._purse(project, owner)
        if want not in purse.within and not purse.unlimited(want):
            why = self._over_quota(purse, want)
            if why is not None:
                self.served.waits[job] = why
                self.served.over_quota.add(job)
                return
        ends = self.now + timeout_s + AFTER_TIMEOUT_S
        area = want.areas.get(location) or self._area(want, location)
        # How many of the reservations it would outlive.
        outlives = bisect_left(area.moments, ends)
        if want in area.full[outlives]:
            self.served.waits[job] = BEHIND
            return
        if self.pledges.kept(project, purse.owner, want.read.gpus, ends):
            self.served.waits[job] = KEPT
            self.served.over_quota.add(job)
            return
        blocked = self._place(each, want, ends, backfill=bool(area.moments) and not outlives)
        if blocked is not None:
            self.served.waits[job] = blocked
            area.full[bisect_left(area.moments, ends)].add(want)

    def _want(self, asked: str) -> _RequestMemory:
        want = self.wants[asked] = _RequestMemory(asked)
        return want

    def _purse(self, project: int, owner: int | None) -> _QuotaMemory:
        """People without a limit of their own are all alike, which spares most questions."""
        payer = owner if (project, owner) in self.book.members else None
        if (project, payer) not in self.purses:
            self.purses[project, payer] = _QuotaMemory(self.book, project, payer)
        purse = self.purses[project, owner] = self.purses[project, payer]
        return purse

    def _area(self, want: _RequestMemory, location: str) -> _HostArea:
        key = (location, want.read.hosts_with)
        if key not in self.areas:
            hosts = self.placer.house.having(want.read.hosts_with, location)
            at = [one.at for one in self.served.reserved if not hosts.isdisjoint(one.seats)]
            self.areas[key] = _HostArea(hosts, sorted(at))
        area = want.areas[location] = self.areas[key]
        return area

    def _over_quota(self, purse: _QuotaMemory, want: _RequestMemory) -> Wait | None:
        if want in purse.over:
            return purse.over[want]
        gpus = want.read.gpus
        why = self.book.refusal(purse.project, purse.owner, gpus)
        if why is None:
            purse.within.add(want)
            return None
        self.pledges.wait(purse.project, purse.owner, gpus)
        purse.over[want] = Wait(WaitReason.QUOTA, f"Waits for quota: {why}.")
        return purse.over[want]

    def _place(self, each: WaitingJob, want: _RequestMemory, ends: float, backfill: bool) -> Wait | None:
        """None when it has its place, else why it has none."""
        wanted = want.read
        spread = each.job + PORTS_APART * each.attempt
        seats = self.placer.find(wanted.gang, each.location, spread, ends, backfill)
        if seats is None:
            return self._blocked(each, want, ends)
        self.book.take(each.project, each.owner, wanted.gpus)
        self.pledges.take(each.project, each.owner, wanted.gpus, ends)
        for purse in self.purses.values():
            if purse.project == each.project:
                purse.within.clear()
        self.served.placed.append((each, seats))
        needs = {ask.replica: ask.needs for ask in wanted.each()}
        claims = tuple(
            HostClaim(seat.host_id, of.cpus, of.memory_mb, of.accelerator_type, of.gpus)
            for seat in seats
            for of in (needs[seat.replica],)
        )
        self.occupants.add(
            RunningJob(each.job, ends, claims, each.spot, self.now, False, each.project, each.owner)
        )
        return None

    # -- blocked --

    def _blocked(self, each: WaitingJob, want: _RequestMemory, ends: float) -> Wait:
        family = (each.location, want.read.kinds)
        first = family not in self.families
        wants = {(each.location, kind) for kind in want.read.kinds or ("",)}
        may_ask = self._may_ask(each, wants)
        if not (first or self.stopping or may_ask):
            return BEHIND
        if not first and not self._time_behind():
            self.stuck |= wants
            return BEHIND
        kept = None
        soon = False
        area = self._area(want, each.location)
        there = self._look(area, family, first)
        if there is not None:
            stopped = self._make_room(each, want, ends, there) if may_ask else ()
            if stopped:
                there = self.occupants.on(area.hosts)
            kept = self._reservation(each, want, area, there) if first or self.stopping else None
            soon = kept is not None and self._soon(kept, there)
        if not soon:
            self.stuck |= wants
        if kept is None or not (first or soon):
            self._not_known(area, family, first)
            return self._lacking(each, want) if first else BEHIND
        self.families.add(family)
        self._keep(each, want, kept)
        return self._explained(self._lacking(each, want), kept, soon)

    def _time_behind(self) -> bool:
        return self.work < MAX_WORK_BEHIND and self.looks_behind < MAX_LOOKS_BEHIND

    def _look(self, area: _HostArea, family: HostFamily, first: bool) -> Sequence[RunningJob] | None:
        """Who is on its hosts, if there is time to look at them for the first of a family. Counts what is looked at."""
        if first and self.work >= self.most_work:
            return None
        self.looks_behind += not first
        if first:
            self.unknown[family] = self.unknown.get(family, 0) + 1
        there = self.occupants.on(area.hosts)
        self.work += len(area.hosts) + len(there)
        return there

    def _not_known(self, area: _HostArea, family: HostFamily, first: bool) -> None:
        """It may be the next one whose start can be known; or there was no time to look, and nobody may be first."""
        looked = self.unknown.get(family, 0)
        if not first or 0 < looked < MAX_UNKNOWN:
            return
        self.families.add(family)
        if not looked:
            self.placer.house.close(area.hosts, self.now)

    def _keep(self, each: WaitingJob, want: _RequestMemory, kept: Reservation) -> None:
        """From now on those who come behind get only what does not delay it."""
        self.served.reserved.append(kept)
        for area in self.areas.values():
            if not area.hosts.isdisjoint(kept.seats):
                area.expect(kept.at)
        self.served.starts[each.job] = whole_minute(kept.at)
        self.placer.house.guard(kept.spare, kept.at)
        self.pledges.reserve(each.project, each.owner, want.read.gpus, kept.at)

    def _reservation(
        self, each: WaitingJob, want: _RequestMemory, area: _HostArea, there: Sequence[RunningJob]
    ) -> Reservation | None:
        return find_reservation(
            self.placer.house,
            there,
            [one for one in self.served.reserved if not area.hosts.isdisjoint(one.seats)],
            each.job,
            want.read,
            each.location,
            self.now,
            each.timeout_s + AFTER_TIMEOUT_S,
        )

    def _may_ask(self, each: WaitingJob, wants: set[tuple[str, str]]) -> bool:
        """Not for somebody behind a job that goes on waiting: it would get the room, and all would begin anew."""
        return bool(self.spots) and not each.spot and wants.isdisjoint(self.stuck)

    def _make_room(
        self, each: WaitingJob, want: _RequestMemory, ends: float, there: Sequence[RunningJob]
    ) -> bool:
        """Are SPOT jobs stopped for it?"""
        spots = [one for one in there if one.job in self.spots]
        stopping = [one for one in there if one.stopping]
        chosen = choose_victims(self.placer.house, spots, stopping, want.read, each.location, self.now, ends)
        for one in chosen:
            self.served.preempted.append(Preemption(one.job, each.job))
            self.spots.remove(one.job)
            self.occupants.remove(one)
            self.occupants.add(one._replace(ends=self.now + self.ground.grace_s, stopping=True))
        self.stopping = self.stopping or bool(chosen)
        return bool(chosen)

    def _soon(self, kept: Reservation, there: Sequence[RunningJob]) -> bool:
        """Is it only waiting for those that are being stopped?"""
        return any(
            one.stopping and one.ends >= kept.at and any(claim.host in kept.seats for claim in one.claims)
            for one in there
        )

    def _lacking(self, each: WaitingJob, want: _RequestMemory) -> Wait:
        return Wait(WaitReason.CAPACITY, self.placer.why(want.read.each(), each.location))

    def _explained(self, lacking: Wait, kept: Reservation, soon: bool) -> Wait:
        text = lacking.text.removesuffix(".")
        hosts = f"{kept.open_now} {'host has' if kept.open_now == 1 else 'hosts have'} room now"
        if soon:
            stopping = f"{text}; {hosts}. {MAKING_ROOM}: others are being stopped."
            return Wait(WaitReason.MAKING_ROOM, stopping)
        names = [self.names[host] for host in kept.last]
        if not names:
            return lacking._replace(text=f"{text}; {hosts}.")
        more = len(names) - NAMED_HOSTS
        told = ", ".join(names[:NAMED_HOSTS]) + (f" and {more} more" if more > 0 else "")
        frees = "frees" if len(names) == 1 else "free"
        at = moment_text(kept.at, self.now)
        return lacking._replace(text=f"{text}; {hosts}; {told} {frees} by {at}.")
