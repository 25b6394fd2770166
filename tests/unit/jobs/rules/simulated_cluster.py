"""Small simulated clusters for the tests of scheduling, and slow, simple checks of what its decisions must keep."""

from __future__ import annotations

import json
from itertools import product

from hypothesis import strategies as st

from jobs.rules.scheduling import resource_requests
from jobs.rules.scheduling.fairness import Share
from jobs.rules.scheduling.order import WaitingJob
from jobs.rules.scheduling.policy import AFTER_TIMEOUT_S, ClusterView, decide_queue
from jobs.rules.scheduling.quota import Limits, QuotaAccount, QuotaLedger
from jobs.rules.scheduling.running_jobs import HostClaim, RunningJob
from jobs.rules.scheduling.views import GpuView, HostView

NOW = 1_900_000_000.0
PORTS = range(20_000, 20_400)
KIND = "NVIDIA_L4"
CPUS = 8


def host(number, gpus=4, location="lab", **facts):
    views = tuple(GpuView(f"GPU-{number}-{index}", KIND, index) for index in range(gpus))
    return HostView(number, f"gpu{number}", location, f"10.0.0.{number}", CPUS, 16_000, views, **facts)


def wants(*groups):
    """The request text for groups of (replicas, GPUs each) or (replicas, GPUs each, CPUs each)."""
    rows = [
        [pool, group[0], *([*group, 1][2:3]), 0, KIND if group[1] else "", group[1]]
        for pool, group in enumerate(groups)
    ]
    return json.dumps(rows)


def job(number, *groups, timeout_s=3_600.0, project=1, owner=1, **more):
    return WaitingJob(number, project, owner, "lab", wants(*groups or [(1, 1)]), timeout_s, **more)


def unlimited():
    return QuotaLedger()


def ledger(limit):
    return QuotaLedger({1: QuotaAccount("project one", Limits({KIND: limit}))} if limit is not None else {})


# -- a cluster that goes on --


class SimulatedCluster:
    """Hosts and the jobs on them. Time advances from one end of a job to the next; every job runs until its timeout."""

    def __init__(self, hosts, shares=None, limit=None):
        self.hosts, self.shares, self.limit = hosts, shares or {}, limit
        self.now, self.placed_jobs, self.waiting, self.started, self.preempted = NOW, {}, {}, {}, []

    def submit(self, each):
        self.waiting[each.job] = each

    @property
    def ledger(self):
        held = ledger(self.limit)
        for each, _, _ in self.placed_jobs.values():
            held.take(each.project, each.owner, resource_requests.decode_request(each.request).gpus)
        return held

    def views(self):
        return [
            occupied(
                view,
                [placement for _, placements, _ in self.placed_jobs.values() for placement in placements],
            )
            for view in self.hosts
        ]

    def running(self):
        return [
            RunningJob(
                each.job,
                ends,
                claims(each, placements),
                each.spot,
                self.started[each.job],
                project=each.project,
                owner=each.owner,
            )
            for each, placements, ends in self.placed_jobs.values()
        ]

    def cluster_view(self):
        held = {}
        for each, _, _ in self.placed_jobs.values():
            held[each.project] = (
                held.get(each.project, 0) + resource_requests.decode_request(each.request).weight
            )
        return ClusterView(self.views(), PORTS, self.running(), self.shares, held)

    def decide(self):
        return decide_queue(self.cluster_view(), list(self.waiting.values()), self.ledger, self.now)

    def step(self):
        decision = self.decide()
        for each, placements in decision.placed:
            self.started[each.job] = self.now
            self.placed_jobs[each.job] = (
                self.waiting.pop(each.job),
                placements,
                self.now + each.timeout_s + AFTER_TIMEOUT_S,
            )
        for one in decision.preempted:
            each, _, _ = self.placed_jobs.pop(one.job)
            self.preempted.append((one.job, one.by))
            self.waiting[each.job] = each
        return decision

    def next_end(self):
        """Advance to the next moment at which a job ends. False when no job runs."""
        if not self.placed_jobs:
            return False
        self.now = min(ends for _, _, ends in self.placed_jobs.values())
        self.placed_jobs = {number: each for number, each in self.placed_jobs.items() if each[2] > self.now}
        return True


def claims(each, placements):
    needs = {
        replica.replica: replica.needs
        for replica in resource_requests.decode_request(each.request).replica_requests()
    }
    found = ((placement, needs[placement.replica]) for placement in placements)
    return tuple(
        HostClaim(placement.host_id, of.cpus, of.memory_mb, of.accelerator_type, of.gpus)
        for placement, of in found
    )


def occupied(view, placements):
    here = [placement for placement in placements if placement.host_id == view.id]
    return HostView(view.id, view.name, view.location, view.address, view.cpus, view.memory_mb, view.gpus,
                    used_cpus=float(len(here)), used_gpus=frozenset(uuid for each in here for uuid in each.gpus),
                    used_ports=frozenset(each.port for each in here))  # fmt: skip


# -- slow and simple --


def could_place(free, groups):
    """Try every way to spread (replicas, needs) over hosts. `free`: [CPUs, GPUs] by host."""
    if not groups:
        return True
    (count, needs), *rest = groups
    most = [
        min(int(cpus // needs.cpus), gpus // needs.gpus if needs.gpus else 99, count) for cpus, gpus in free
    ]
    for spread in product(*(range(each, -1, -1) for each in most)):
        if sum(spread) == count:
            left = [
                (cpus - n * needs.cpus, gpus - n * needs.gpus)
                for (cpus, gpus), n in zip(free, spread, strict=True)
            ]
            if could_place(left, rest):
                return True
    return False


def free_of(hosts, claims):
    return [
        (
            view.cpus - sum(c.cpus for c in claims if c.host == view.id),
            len(view.gpus) - sum(c.gpus for c in claims if c.host == view.id),
        )
        for view in hosts
    ]


def fits_beside(hosts, claims, each):
    groups = [(count, needs) for needs, count in resource_requests.decode_request(each.request).sizes]
    return could_place(free_of(hosts, claims), groups)


def could_ever(hosts, each):
    return fits_beside(hosts, [], each)


def slow_order(waiting, shares, held):
    """One after the other: the earliest job of the project that is charged the least."""
    left, charged, found = list(waiting), {}, []
    for each in waiting:
        share = shares.get(each.project, Share())
        charged[each.project] = (share.used_gpu_seconds + held.get(each.project, 0) * 3_600) / share.weight
    while left:
        top = min((each.spot, -each.priority) for each in left)
        first = {}
        for each in sorted(
            (each for each in left if (each.spot, -each.priority) == top), key=lambda each: each.job
        ):
            first.setdefault(each.project, each)
        best = min(first.values(), key=lambda each: (charged[each.project], each.job))
        charged[best.project] += (
            resource_requests.decode_request(best.request).weight
            * 3_600
            / shares.get(best.project, Share()).weight
        )
        left.remove(best)
        found.append(best)
    return found


# -- what hypothesis makes --

GROUPS = st.one_of(
    st.tuples(st.tuples(st.integers(1, 4), st.integers(0, 4))),
    st.tuples(st.tuples(st.just(1), st.integers(0, 2)), st.tuples(st.integers(1, 2), st.integers(1, 4))),
)
TIMEOUTS = st.sampled_from([60.0, 600.0, 3_600.0, 86_400.0])


EITHER, NO_LIMIT = st.booleans(), st.none()


@st.composite
def jobs(draw, most=8, first=1, spot=EITHER):
    numbers = range(first, first + draw(st.integers(1, most)))
    return [
        job(
            number,
            *draw(GROUPS),
            timeout_s=draw(TIMEOUTS),
            project=draw(st.integers(1, 2)),
            priority=draw(st.sampled_from([0, 0, 100, -100])),
            spot=draw(spot),
        )
        for number in numbers
    ]


@st.composite
def simulated_clusters(draw, limit=NO_LIMIT):
    """Some hosts, partly taken by jobs that came before."""
    hosts = [host(number, draw(st.sampled_from([0, 2, 4]))) for number in range(1, draw(st.integers(2, 4)))]
    cluster = SimulatedCluster(
        hosts, {1: Share(draw(st.sampled_from([1.0, 3.0])), draw(st.sampled_from([0.0, 1e4])))}, draw(limit)
    )
    for each in draw(jobs(6)):
        cluster.submit(each)
    cluster.step()
    cluster.waiting.clear()
    cluster.preempted.clear()
    cluster.now += draw(st.sampled_from([0.0, 30.0, 500.0]))
    return cluster
