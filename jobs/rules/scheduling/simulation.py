"""When waiting jobs would start: the decision about the queue, made again and again over simulated time.

Each job ends when the caller says that it does: at its limit, or after as long as such jobs ran lately. No job is
added, and no host comes or goes. SPOT jobs that are stopped are not followed any further. Which GPUs of a host a
running job holds is not told here; any of their kind stand for them, since only their number decides who fits.

The work is bounded. Where it does not last for a decision after each end, the ends of a while are taken together, at
the latest of them: so every start is told late rather than early.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from heapq import heapify, heappop, heappush

from jobs.rules.scheduling import resource_requests
from jobs.rules.scheduling.order import WaitingJob
from jobs.rules.scheduling.policy import AFTER_TIMEOUT_S, ClusterView, Preemption, decide_queue
from jobs.rules.scheduling.quota import QuotaLedger
from jobs.rules.scheduling.running_jobs import HostClaim, RunningJob
from jobs.rules.scheduling.views import HostView, Placement

# How much one simulation may look at: hosts and jobs, once for each decision.
MAX_WORK = 200_000
MAX_DECISIONS = 600
# Ends that are less than this apart may be taken together.
APART_S = 30.0

Ends = Mapping[int, float]
Lasts = Callable[[WaitingJob], float]


def at_limit(job: WaitingJob) -> float:
    """How long a job runs that is stopped by its timeout."""
    return job.timeout_s + AFTER_TIMEOUT_S


def starts(
    cluster: ClusterView,
    waiting: Sequence[WaitingJob],
    ledger: QuotaLedger,
    now: float,
    ends: Ends | None = None,
    lasts: Lasts = at_limit,
    max_work: int = MAX_WORK,
) -> dict[int, float]:
    """When each waiting job would start. Jobs of which that cannot be known are left out.

    `ends`: when running jobs end, if not at their limits. `lasts`: how long a waiting job runs.
    """
    simulated = _Simulation(cluster, waiting, ledger, now, ends or {}, lasts)
    simulated.run(max_work)
    return simulated.starts


class _Simulation:
    def __init__(
        self,
        cluster: ClusterView,
        waiting: Sequence[WaitingJob],
        ledger: QuotaLedger,
        now: float,
        ends: Ends,
        lasts: Lasts,
    ) -> None:
        self.cluster, self.now, self.began, self.lasts = cluster, now, now, lasts
        # Ports are plenty, and those that are given back are not followed.
        self.hosts = {host.id: replace(host, used_ports=frozenset()) for host in cluster.hosts}
        self.running = {each.job: each for each in cluster.running}
        self.waiting = {each.job: each for each in waiting}
        self.ledger = deepcopy(ledger)
        self.held = dict(cluster.held)
        self.starts: dict[int, float] = {}
        # The GPUs in use that stand for no job yet, by host and kind; and those of each job by host.
        self.spare: dict[int, dict[str, list[str]]] = {}
        self.gpus: dict[int, dict[int, list[str]]] = {}
        for each in cluster.running:
            self.gpus[each.job] = self._stand_ins(each)
        self.ends = [(max(ends.get(each.job, each.ends), now), each.job) for each in cluster.running]
        heapify(self.ends)

    def run(self, max_work: int) -> None:
        size = len(self.hosts) + len(self.running) + len(self.waiting)
        left = min(max(max_work // max(size, 1), 1), MAX_DECISIONS)
        while left > 0 and self.waiting:
            left -= 1
            if self._decide():
                continue
            if not self.ends:
                return
            self._advance(left)

    def _decide(self) -> bool:
        """Place what can start now. True if another decision should follow at the same time."""
        cluster = replace(
            self.cluster, hosts=list(self.hosts.values()), running=list(self.running.values()), held=self.held
        )
        decision = decide_queue(cluster, list(self.waiting.values()), self.ledger, self.now)
        for job, placements in decision.placed:
            self._start(job, placements)
        for one in decision.preempted:
            self._stop(one)
        return decision.more

    def _start(self, job: WaitingJob, placements: Sequence[Placement]) -> None:
        self.starts[job.job] = self.now
        del self.waiting[job.job]
        wanted = resource_requests.decode_request(job.request)
        needs = {each.replica: each.needs for each in wanted.replica_requests()}
        claims = []
        held = self.gpus[job.job] = {}
        for place in placements:
            of = needs[place.replica]
            claims.append(HostClaim(place.host_id, of.cpus, of.memory_mb, of.accelerator_type, of.gpus))
            held.setdefault(place.host_id, []).extend(place.gpus)
            self._change(place.host_id, of.cpus, of.memory_mb, frozenset(place.gpus), frozenset())
        limit = self.now + at_limit(job)
        self.running[job.job] = RunningJob(
            job.job, limit, tuple(claims), job.spot, self.now, False, job.project, job.owner
        )
        self.held[job.project] = self.held.get(job.project, 0.0) + wanted.weight
        heappush(self.ends, (min(self.now + max(self.lasts(job), 1.0), limit), job.job))

    def _stop(self, one: Preemption) -> None:
        ends = self.now + self.cluster.grace_s
        self.running[one.job] = self.running[one.job]._replace(ends=ends, stopping=True)
        self.ends = [(ends if job == one.job else at, job) for at, job in self.ends]
        heapify(self.ends)

    def _advance(self, left: int) -> None:
        """Let the next job end, and those whose ends are taken together with it."""
        self.now, _ = self.ends[0]
        until = self.now
        if len(self.ends) + len(self.waiting) > left:
            until = max(self.now + APART_S, self.began + (self.now - self.began) * self._growth(left))
        while self.ends and self.ends[0][0] <= until:
            self.now, job = heappop(self.ends)
            self._end(job)

    def _growth(self, left: int) -> float:
        """By which factor the time from the beginning grows with each step, so that the steps reach the last end."""
        reach = max(max(self.ends)[0] - self.began, APART_S) / max(self.now - self.began, APART_S)
        return math.pow(max(reach, 1.0), 1 / max(left, 1))

    def _end(self, job: int) -> None:
        over = self.running.pop(job)
        gone = self.gpus.pop(job)
        for claim in over.claims:
            freed = frozenset(gone.pop(claim.host, ()))
            self._change(claim.host, -claim.cpus, -claim.memory_mb, frozenset(), freed)
        self.ledger.give(over.project, over.owner, over.by_kind)
        weight = over.gpus or sum(claim.cpus for claim in over.claims) / resource_requests.CPUS_PER_GPU
        self.held[over.project] = max(self.held.get(over.project, 0.0) - weight, 0.0)

    def _change(
        self, host: int, cpus: float, memory_mb: int, taken: frozenset[str], freed: frozenset[str]
    ) -> None:
        view = self.hosts.get(host)
        if view is None:
            return
        self.hosts[host] = replace(
            view,
            used_cpus=view.used_cpus + cpus,
            used_memory_mb=view.used_memory_mb + memory_mb,
            used_gpus=(view.used_gpus | taken) - freed,
        )

    def _stand_ins(self, job: RunningJob) -> dict[int, list[str]]:
        """GPUs for those that the running job holds on each host."""
        found: dict[int, list[str]] = {}
        for claim in job.claims:
            view = self.hosts.get(claim.host)
            if view is None or not claim.gpus:
                continue
            mine = found.setdefault(claim.host, [])
            mine += self._unnamed(view, claim)
        return found

    def _unnamed(self, view: HostView, claim: HostClaim) -> list[str]:
        """The GPUs of that kind which are in use and stand for no job yet."""
        if view.id not in self.spare:
            self.spare[view.id] = {}
            for gpu in view.gpus:
                if gpu.uuid in view.used_gpus and gpu.uuid not in view.unfit:
                    self.spare[view.id].setdefault(gpu.accelerator_type, []).append(gpu.uuid)
        spare = self.spare[view.id].get(claim.kind, [])
        chosen, spare[:] = spare[: claim.gpus], spare[claim.gpus :]
        return chosen
