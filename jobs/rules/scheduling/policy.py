"""One decision about the whole queue: which jobs get their placements, which SPOT jobs make room, why the others wait.

Jobs are offered in their order (order.py). Of the jobs that want the same kind of GPUs in the same location, the first
without capacity gets a reservation (backfill.py); the jobs behind it get only what does not delay it. Before it waits,
SPOT jobs may be stopped to make room for it (preemption.py). A job whose project or owner is over quota does not hold
up jobs of others; the jobs behind it in its own project get only what does not delay it (quota_reservations.py).

A search for a reservation costs as much as there are hosts and running jobs to look at. The first job of each kind has
searches of its own. When a pass has used up its budget, the hosts of a kind whose first job was not searched for are
closed to the jobs behind it. This delays no job before them, and lasts for this pass only.

Jobs with equal requests are searched for only once in a location, because capacity only shrinks within a pass. So a
pass over n waiting jobs grows with n log n, for their order, and ends soon where nothing is free.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agents.infra.texts import join, said, said_of
from jobs.rules.list_text import list_text
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
from jobs.rules.scheduling.views import HostView, Placement, location_of
from jobs.rules.scheduling.wait_reasons import Wait, WaitReason

BEHIND = Wait(WaitReason.TURN, said("Waits for its turn: earlier jobs wait for the same hosts."))
KEPT = Wait(
    WaitReason.QUOTA_RESERVED,
    said("Waits for its turn: what it needs of the quota is kept for an earlier job."),
)
# The ports of the next attempt are tried this far from those of the last: a foreign program may have taken a row.
PORTS_APART = 101
# After its timeout a job may take this long to end: the stop, its grace, and the evidence that all of it is over.
AFTER_TIMEOUT_S = 120.0
MAX_PLACED = 200
# The budget of a pass: how many hosts and running jobs its searches may look at; less for jobs behind the first.
MAX_WORK, MAX_WORK_BEHIND = 60_000, 30_000
# In a very large cluster the budget is larger: this many looks at all of it.
MAX_WHOLE_LOOKS = 8
MAX_LOOKS_BEHIND = 12
# At most so many jobs of a kind are searched for in vain: when a host that they need does not answer, their start
# cannot be known.
MAX_UNKNOWN = 4
NAMED_HOSTS = 3


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What a decision is made from, beside the queue: hosts, and the jobs that run on them.

    `held`: the GPUs that each project holds. `grace_s`: how long a preempted job takes to free its GPUs.
    """

    hosts: Sequence[HostView]
    ports: range
    running: Sequence[RunningJob] = ()
    shares: Mapping[int, Share] = field(default_factory=dict)
    held: Mapping[int, float] = field(default_factory=dict)
    grace_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Preemption:
    """SPOT job `job` is to make room for job `by`."""

    job: int
    by: int


@dataclass(slots=True)
class QueueDecision:
    """What a pass decided.

    `waits`: why each job without placements waits. `starts`: when a job starts at the latest, where that is known.
    `over_quota`: the jobs that wait for quota. `more`: as many jobs as one pass may start have a place; decide again at
    once.
    """

    placed: list[tuple[WaitingJob, tuple[Placement, ...]]] = field(default_factory=list)
    waits: dict[int, Wait] = field(default_factory=dict)
    starts: dict[int, float] = field(default_factory=dict)
    preempted: list[Preemption] = field(default_factory=list)
    reserved: list[Reservation] = field(default_factory=list)
    over_quota: set[int] = field(default_factory=set)
    more: bool = False


def decide_queue(
    cluster: ClusterView,
    waiting: Sequence[WaitingJob],
    ledger: QuotaLedger,
    now: float,
    max_placed: int = MAX_PLACED,
) -> QueueDecision:
    """Decide about all waiting jobs. `ledger` is changed: it counts what this pass places."""
    decider = _QueueDecider(cluster, ledger, now)
    for job in in_order(waiting, cluster.shares, cluster.held):
        if decider.starting >= max_placed:
            decider.decision.more = True
            break
        decider.offer(job)
    return decider.decision


# A location and the kinds of GPUs that are wanted there: the jobs of one family wait for the same hosts.
HostFamily = tuple[str, tuple[str, ...]]


class _HostArea:
    """The hosts on which jobs of a family may be placed, and what this pass knows about them.

    `moments`: when reservations on these hosts start. `full`: the requests for which no capacity was found, by how many
    of these moments the job would outlive.
    """

    __slots__ = ("full", "hosts", "moments")

    def __init__(self, hosts: frozenset[int], moments: list[float]) -> None:
        self.hosts, self.moments = hosts, moments
        self.full: list[set[_RequestMemory]] = [set() for _ in range(len(moments) + 1)]

    def expect(self, at: float) -> None:
        """One more reservation starts at `at`."""
        insort(self.moments, at)
        self.full = [set() for _ in range(len(self.moments) + 1)]


class _RequestMemory:
    """What this pass knows about all jobs with equal requests."""

    __slots__ = ("areas", "demand")

    def __init__(self, request_text: str) -> None:
        self.demand = resource_requests.decode_request(request_text)
        self.areas: dict[str, _HostArea] = {}


class _QuotaMemory:
    """What this pass knows about jobs that count against the same limits: which requests are within quota, and why the
    others are not.

    `free`: the limits concern only jobs that need GPUs of the kinds in `limited`.
    """

    __slots__ = ("free", "limited", "over", "owner", "project", "within")

    def __init__(self, ledger: QuotaLedger, project: int, owner: int | None) -> None:
        self.project, self.owner = project, owner
        limits = [account.limits for account in ledger.accounts(project, owner)]
        self.free = not any(each.concern({}) for each in limits)
        self.limited = frozenset(kind for each in limits for kind in each.gpus)
        self.within: set[_RequestMemory] = set()
        # What a project holds only grows within a pass, so a refusal holds until the end of the pass.
        self.over: dict[_RequestMemory, Wait] = {}

    def unlimited(self, request: _RequestMemory) -> bool:
        return self.free and self.limited.isdisjoint(request.demand.kinds)


class _QueueDecider:
    def __init__(self, cluster: ClusterView, ledger: QuotaLedger, now: float) -> None:
        self.cluster, self.ledger, self.now = cluster, ledger, now
        self.decision = QueueDecision()
        # How many of the placed jobs can start: a trial without parameters must not keep others from their turn.
        self.starting = 0
        self.placer = Placer(cluster.hosts, cluster.ports)
        self.running = RunningJobs(cluster.running)
        self.quota_reservations = QuotaReservations(ledger, self.running)
        self.stopping = any(each.stopping for each in self.running.all)
        self.spots = {each.job for each in self.running.all if each.spot and not each.stopping}
        self.work = 0
        self.max_work = max(MAX_WORK, MAX_WHOLE_LOOKS * (len(cluster.hosts) + len(self.running.all)))
        self.looks_behind = 0
        self.unknown: dict[HostFamily, int] = {}
        self.names = {host.id: host.name for host in cluster.hosts}
        self.requests: dict[str, _RequestMemory] = {}
        self.memories: dict[tuple[int, int | None], _QuotaMemory] = {}
        self.areas: dict[HostFamily, _HostArea] = {}
        self.families: set[HostFamily] = set()
        # Locations and kinds where a job waits for which no SPOT job can make room: it gets what is freed there first.
        self.stuck: set[tuple[str, str]] = set()

    def offer(self, job: WaitingJob) -> None:
        """Place the job, or note why it waits. For most jobs of a long queue this ends at the second `return`."""
        pk, project, owner, location, request_text, timeout_s, *_ = job
        request = self.requests.get(request_text) or self._request(request_text)
        memory = self.memories.get((project, owner)) or self._quota_memory(project, owner)
        if request not in memory.within and not memory.unlimited(request):
            why = self._over_quota(memory, request)
            if why is not None:
                self.decision.waits[pk] = why
                self.decision.over_quota.add(pk)
                return
        ends = self.now + timeout_s + AFTER_TIMEOUT_S
        area = request.areas.get(location) or self._area(request, location)
        # How many of the reservations the job would outlive.
        outlives = bisect_left(area.moments, ends)
        if request in area.full[outlives]:
            self.decision.waits[pk] = BEHIND
            return
        if self.quota_reservations.kept(project, memory.owner, request.demand.gpus, ends):
            self.decision.waits[pk] = KEPT
            self.decision.over_quota.add(pk)
            return
        blocked = self._place(job, request, ends, backfill=bool(area.moments) and not outlives)
        if blocked is not None:
            self.decision.waits[pk] = blocked
            area.full[bisect_left(area.moments, ends)].add(request)

    def _request(self, request_text: str) -> _RequestMemory:
        request = self.requests[request_text] = _RequestMemory(request_text)
        return request

    def _quota_memory(self, project: int, owner: int | None) -> _QuotaMemory:
        """Members without a limit of their own share one memory, which saves most questions to the ledger."""
        limited_owner = owner if (project, owner) in self.ledger.members else None
        if (project, limited_owner) not in self.memories:
            self.memories[project, limited_owner] = _QuotaMemory(self.ledger, project, limited_owner)
        memory = self.memories[project, owner] = self.memories[project, limited_owner]
        return memory

    def _area(self, request: _RequestMemory, location: str) -> _HostArea:
        key = (location, request.demand.hosts_with)
        if key not in self.areas:
            hosts = self.placer.capacity.hosts_with(request.demand.hosts_with, location)
            at = [one.at for one in self.decision.reserved if not hosts.isdisjoint(one.claims)]
            self.areas[key] = _HostArea(hosts, sorted(at))
        area = request.areas[location] = self.areas[key]
        return area

    def _over_quota(self, memory: _QuotaMemory, request: _RequestMemory) -> Wait | None:
        if request in memory.over:
            return memory.over[request]
        gpus = request.demand.gpus
        why = self.ledger.refusal(memory.project, memory.owner, gpus)
        if why is None:
            memory.within.add(request)
            return None
        self.quota_reservations.wait(memory.project, memory.owner, gpus)
        memory.over[request] = Wait(WaitReason.QUOTA, said("Waits for quota: {why}.", why=why))
        return memory.over[request]

    def _place(self, job: WaitingJob, request: _RequestMemory, ends: float, backfill: bool) -> Wait | None:
        """Place the job if there is capacity: None; otherwise, why it waits."""
        wanted = request.demand
        spread = job.job + PORTS_APART * job.attempt
        placements = self.placer.find(wanted.gang, job.location, spread, ends, backfill)
        if placements is None:
            return self._blocked(job, request, ends)
        self.ledger.take(job.project, job.owner, wanted.gpus)
        self.quota_reservations.take(job.project, job.owner, wanted.gpus, ends)
        for memory in self.memories.values():
            if memory.project == job.project:
                memory.within.clear()
        self.decision.placed.append((job, placements))
        self.starting += not job.undrawn
        needs = {each.replica: each.needs for each in wanted.replica_requests()}
        claims = tuple(
            HostClaim(placement.host_id, of.cpus, of.memory_mb, of.accelerator_type, of.gpus)
            for placement in placements
            for of in (needs[placement.replica],)
        )
        self.running.add(RunningJob(job.job, ends, claims, job.spot, self.now, False, job.project, job.owner))
        return None

    # -- blocked --

    def _blocked(self, job: WaitingJob, request: _RequestMemory, ends: float) -> Wait:
        family = (job.location, request.demand.kinds)
        first = family not in self.families
        # By location, not by the scope of one project: scopes of a location share hosts.
        wanted = {(location_of(job.location), kind) for kind in request.demand.kinds or ("",)}
        may_preempt = self._may_preempt(job, wanted)
        if not (first or self.stopping or may_preempt):
            return BEHIND
        if not first and not self._has_budget_behind():
            self.stuck |= wanted
            return BEHIND
        kept = None
        soon = False
        area = self._area(request, job.location)
        running_there = self._running_there(area, family, first)
        if running_there is not None:
            stopped = self._make_room(job, request, ends, running_there) if may_preempt else ()
            if stopped:
                running_there = self.running.on(area.hosts)
            kept = self._reservation(job, request, area, running_there) if first or self.stopping else None
            soon = kept is not None and self._starts_when_stopped(kept, running_there)
        if not soon:
            self.stuck |= wanted
        if kept is None or not (first or soon):
            self._note_unknown_start(area, family, first)
            return self._lacking(job, request) if first else BEHIND
        self.families.add(family)
        self._keep(job, request, kept)
        return self._explained(job, request, kept, soon)

    def _has_budget_behind(self) -> bool:
        return self.work < MAX_WORK_BEHIND and self.looks_behind < MAX_LOOKS_BEHIND

    def _running_there(self, area: _HostArea, family: HostFamily, first: bool) -> Sequence[RunningJob] | None:
        """The jobs on the area's hosts; None when the budget for the first of a family is used up. Counts the looks."""
        if first and self.work >= self.max_work:
            return None
        self.looks_behind += not first
        if first:
            self.unknown[family] = self.unknown.get(family, 0) + 1
        running_there = self.running.on(area.hosts)
        self.work += len(area.hosts) + len(running_there)
        return running_there

    def _note_unknown_start(self, area: _HostArea, family: HostFamily, first: bool) -> None:
        """The start of this job cannot be known. The next job of its family may be the first one instead; unless too
        many were tried, or the budget is used up: then the area's hosts are closed to those behind."""
        looked = self.unknown.get(family, 0)
        if not first or 0 < looked < MAX_UNKNOWN:
            return
        self.families.add(family)
        if not looked:
            self.placer.capacity.close(area.hosts, self.now)

    def _keep(self, job: WaitingJob, request: _RequestMemory, kept: Reservation) -> None:
        """Note the reservation: from now on, jobs behind this one get only what does not delay it."""
        self.decision.reserved.append(kept)
        for area in self.areas.values():
            if not area.hosts.isdisjoint(kept.claims):
                area.expect(kept.at)
        self.decision.starts[job.job] = whole_minute(kept.at)
        self.placer.capacity.guard(kept.spare, kept.at)
        self.quota_reservations.reserve(job.project, job.owner, request.demand.gpus, kept.at)

    def _reservation(
        self, job: WaitingJob, request: _RequestMemory, area: _HostArea, running_there: Sequence[RunningJob]
    ) -> Reservation | None:
        return find_reservation(
            self.placer.capacity,
            running_there,
            [one for one in self.decision.reserved if not area.hosts.isdisjoint(one.claims)],
            job.job,
            request.demand,
            job.location,
            self.now,
            job.timeout_s + AFTER_TIMEOUT_S,
        )

    def _may_preempt(self, job: WaitingJob, wanted: set[tuple[str, str]]) -> bool:
        """May SPOT jobs be stopped for this one? Not behind a job that goes on waiting: that one would get the room,
        and the next pass would stop SPOT jobs again."""
        return bool(self.spots) and not job.spot and wanted.isdisjoint(self.stuck)

    def _make_room(
        self, job: WaitingJob, request: _RequestMemory, ends: float, running_there: Sequence[RunningJob]
    ) -> bool:
        """Stop SPOT jobs for this job, if that lets it start. True if any are stopped."""
        spots = [one for one in running_there if one.job in self.spots]
        stopping = [one for one in running_there if one.stopping]
        chosen = choose_victims(
            self.placer.capacity, spots, stopping, request.demand, job.location, self.now, ends
        )
        for one in chosen:
            self.decision.preempted.append(Preemption(one.job, job.job))
            self.spots.remove(one.job)
            self.running.remove(one)
            self.running.add(one._replace(ends=self.now + self.cluster.grace_s, stopping=True))
        self.stopping = self.stopping or bool(chosen)
        return bool(chosen)

    def _starts_when_stopped(self, kept: Reservation, running_there: Sequence[RunningJob]) -> bool:
        """Does the reservation wait only for jobs that are being stopped?"""
        return any(
            one.stopping and one.ends >= kept.at and any(claim.host in kept.claims for claim in one.claims)
            for one in running_there
        )

    def _lacking(self, job: WaitingJob, request: _RequestMemory, *more: str) -> Wait:
        """Waits for capacity: what it needs, what is free, and `more`."""
        lacking = self.placer.lacking(request.demand.replica_requests(), job.location)
        return Wait(WaitReason.CAPACITY, said("{words}.", words=join("; ", [lacking, *more])))

    def _explained(self, job: WaitingJob, request: _RequestMemory, kept: Reservation, soon: bool) -> Wait:
        open_now = said_of(kept.open_now, "{number} host has room now", "{number} hosts have room now")
        if soon:
            stopping = said("Its place is being made free: others are being stopped.")
            text = join(" ", [self._lacking(job, request, open_now).text, stopping])
            return Wait(WaitReason.MAKING_ROOM, text)
        names = [self.names[host] for host in kept.last]
        return self._lacking(job, request, open_now, *([self._frees(names, kept.at)] if names else []))

    def _frees(self, names: Sequence[str], at: float) -> str:
        return said_of(
            len(names),
            "{hosts} frees by {time}",
            "{hosts} free by {time}",
            hosts=list_text(names, NAMED_HOSTS),
            time=moment_text(at, self.now),
        )
