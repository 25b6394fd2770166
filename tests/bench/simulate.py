"""A month of a cluster of 64 hosts with 512 GPUs, by the rules of the product and by plain first come, first served.

`python -m tests.bench.simulate [--days 30] [--seed 1] [--plot FILE]` prints a table and draws it. The same jobs are
submitted at the same moments in both. The scheduler knows the timeout of a job, and not how long it will run.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import sys
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path

from jobs.rules.scheduling import resource_requests
from jobs.rules.scheduling.fairness import Share, decayed, index
from jobs.rules.scheduling.order import WaitingJob
from jobs.rules.scheduling.placement import Placer
from jobs.rules.scheduling.policy import AFTER_TIMEOUT_S, ClusterView, QueueDecision, decide_queue
from jobs.rules.scheduling.quota import QuotaLedger
from jobs.rules.scheduling.running_jobs import HostClaim, RunningJob
from jobs.rules.scheduling.views import GpuView, HostView
from tests.bench.figures import percentile
from tests.bench.plot import drawing

HOSTS, GPUS, KIND = 64, 8, "NVIDIA_H100_80GB"
HOUR, DAY = 3_600.0, 86_400.0
START = 1_900_022_400.0  # a midnight
# The scheduler decides when something changes, in the simulation at most once in so many seconds.
STEP_S = 120.0
GRACE_S, CHECKPOINT_S = 60.0, 1_800.0
PORTS = range(20_000, 40_000)


@dataclass
class Work:
    """A job, with how long it really runs."""

    asked: WaitingJob
    came: float
    lasts: float
    gpus: int
    kind: str
    waited: float | None = None
    left: float = field(init=False)

    def __post_init__(self):
        self.left = self.lasts


# Share of the jobs, replicas, GPUs each, median hours, name of the class.
MIX = (
    (0.50, 1, 1, 0.5, "1 GPU"),
    (0.14, 1, 2, 1.5, "2 to 8 GPUs"),
    (0.12, 1, 4, 3.0, "2 to 8 GPUs"),
    (0.14, 1, 8, 5.0, "2 to 8 GPUs"),
    (0.05, 2, 8, 8.0, "16 to 128 GPUs"),
    (0.03, 4, 8, 10.0, "16 to 128 GPUs"),
    (0.015, 8, 8, 12.0, "16 to 128 GPUs"),
    (0.005, 16, 8, 12.0, "16 to 128 GPUs"),
)
CLASSES = ("1 GPU", "2 to 8 GPUs", "16 to 128 GPUs", "SPOT")
# Shares of the five projects. The first submits its jobs in batches, on two mornings of the week.
PROJECTS = (0.35, 0.25, 0.2, 0.12, 0.08)


def a_month(days, seed, load):
    """Return the jobs in the order of submission."""
    dice = random.Random(seed)
    mean = sum(share * replicas * gpus * median * 1.65 for share, replicas, gpus, median, _ in MIX)
    count = int(load * HOSTS * GPUS * 24 * days / mean)
    found = [a_job(dice, days) for _ in range(count)]
    found.sort(key=lambda work: work[0])
    return [work(came, number) for number, (came, work) in enumerate(found, 1)]


def a_job(dice, days):
    _, replicas, gpus, median, kind = dice.choices(MIX, [each[0] for each in MIX])[0]
    project = dice.choices(range(len(PROJECTS)), PROJECTS)[0]
    came = moment(dice, days, heaps=project == 0)
    lasts = min(max(dice.lognormvariate(0, 1.0) * median * HOUR, 60.0), 6 * DAY)
    spot = gpus * replicas <= 8 and dice.random() < 0.15
    # Two in five set no timeout, which means a week.
    timeout_s = 7 * DAY if dice.random() < 0.4 else min(max(lasts * dice.uniform(1.2, 4), 900.0), 7 * DAY)
    priority = dice.choices((0, 100, -100), (0.9, 0.03, 0.07))[0]
    request = json.dumps([[0, replicas, 8.0 * gpus, 0, KIND, gpus]])

    def work(came, number):
        asked = WaitingJob(number, project, project, "lab", request, timeout_s, priority, spot)
        return Work(asked, came, lasts, gpus * replicas, "SPOT" if spot else kind)

    return came, work


def moment(dice, days, heaps):
    """Return a moment of submission, mostly by day and on weekdays."""
    while True:
        at = dice.random() * days
        weekday, hour = int(at) % 7, at % 1 * 24
        if heaps:
            at = int(at) + 9 / 24 + dice.random() / 48
            if weekday in (0, 3):
                return START + at * DAY
        elif dice.random() < (1.0 if 8 <= hour < 20 else 0.35) * (0.4 if weekday > 4 else 1.0):
            return START + at * DAY


class Cluster:
    def __init__(self, jobs, fifo):
        self.fifo, self.now = fifo, START
        self.coming = list(reversed(jobs))
        self.waiting, self.placed_jobs, self.ends = {}, {}, []
        self.used, self.busy = dict.fromkeys(range(len(PROJECTS)), 0.0), defaultdict(float)
        self.preempted, self.held, self.done = 0, 0, []

    def run(self, until):
        while self.now < until and (self.coming or self.waiting or self.placed_jobs):
            changed = self.arrivals() | self.endings()
            if changed:
                self.decide()
            self.pass_time(min(self.next_change(), until))

    def next_change(self):
        ahead = [self.coming[-1].came] if self.coming else []
        ahead += [self.ends[0][0]] if self.ends else []
        return max(min(ahead, default=float("inf")), self.now + STEP_S)

    def pass_time(self, until):
        while self.now < until:
            day = int((self.now - START) // DAY)
            next_ = min(until, START + (day + 1) * DAY)
            self.busy[day] += self.held * (next_ - self.now)
            for project in self.used:
                gpus = sum(
                    work.gpus for work, _, _ in self.placed_jobs.values() if work.asked.project == project
                )
                self.used[project] = decayed(self.used[project], next_ - self.now) + gpus * (next_ - self.now)
            self.now = next_

    def arrivals(self):
        changed = False
        while self.coming and self.coming[-1].came <= self.now:
            work = self.coming.pop()
            self.waiting[work.asked.job] = work
            changed = True
        return changed

    def endings(self):
        changed = False
        while self.ends and self.ends[0][0] <= self.now:
            _, job, began = heapq.heappop(self.ends)
            if job in self.placed_jobs and self.placed_jobs[job][2] == began:
                work, _, _ = self.placed_jobs.pop(job)
                self.held -= work.gpus
                self.done.append(work)
                changed = True
        return changed

    def decide(self):
        decision = self.first_come() if self.fifo else self.ours()
        for asked, placements in decision.placed:
            work = self.waiting.pop(asked.job)
            if work.waited is None:
                work.waited = self.now - work.came
            self.placed_jobs[asked.job] = (work, placements, self.now)
            self.held += work.gpus
            heapq.heappush(self.ends, (self.now + work.left, asked.job, self.now))
        for one in decision.preempted:
            self.stop(one.job)
        if decision.more or decision.preempted:
            self.decide()

    def stop(self, job):
        """Preempt a job; it begins again at its last checkpoint. (Its grace, a minute, is left out.)"""
        work, _, began = self.placed_jobs.pop(job)
        ran = self.now - began
        work.left -= ran // CHECKPOINT_S * CHECKPOINT_S
        self.held -= work.gpus
        self.preempted += 1
        self.waiting[job] = work

    def views(self):
        gpus, cpus, ports = defaultdict(set), defaultdict(float), defaultdict(set)
        for _, placements, _ in self.placed_jobs.values():
            for placement in placements:
                gpus[placement.host_id].update(placement.gpus)
                cpus[placement.host_id] += 8.0 * len(placement.gpus)
                ports[placement.host_id].add(placement.port)
        return [
            replace(
                host,
                used_gpus=frozenset(gpus[host.id]),
                used_cpus=cpus[host.id],
                used_ports=frozenset(ports[host.id]),
            )
            for host in FLEET
        ]

    def ours(self):
        running = [
            RunningJob(
                work.asked.job,
                began + work.asked.timeout_s + AFTER_TIMEOUT_S,
                tuple(
                    HostClaim(placement.host_id, 8.0 * len(placement.gpus), 0, KIND, len(placement.gpus))
                    for placement in placements
                ),
                work.asked.spot,
                began,
            )
            for work, placements, began in self.placed_jobs.values()
        ]
        shares = {project: Share(1.0, amount) for project, amount in self.used.items()}
        held = defaultdict(float)
        for work, _, _ in self.placed_jobs.values():
            held[work.asked.project] += work.gpus
        cluster = ClusterView(self.views(), PORTS, running, shares, held, GRACE_S)
        return decide_queue(cluster, [work.asked for work in self.waiting.values()], QuotaLedger(), self.now)

    def first_come(self):
        """Decide first come, first served: the oldest first, without backfill."""
        decision, placer = QueueDecision(), Placer(self.views(), PORTS)
        for job in sorted(self.waiting):
            asked = self.waiting[job].asked
            placements = placer.find(
                resource_requests.decode_request(asked.request).gang, "lab", job, float("inf"), False
            )
            if placements is None:
                break
            decision.placed.append((asked, placements))
        return decision


FLEET = [
    HostView(
        number,
        f"gpu{number:02}",
        "lab",
        "10.0.0.1",
        96.0,
        2_000_000,
        tuple(GpuView(f"GPU-{number}-{each}", KIND, each) for each in range(GPUS)),
    )
    for number in range(HOSTS)
]


@dataclass(frozen=True)
class Month:
    """The results of a month."""

    name: str
    by_day: list[float]
    waits: dict[str, list[float]]
    slowdowns: dict[int, float]
    left: int
    preempted: int

    @property
    def utilisation(self):
        return sum(self.by_day) / len(self.by_day)

    @property
    def fairness(self):
        """Return Jain's index of the projects' slowdowns: 1 when all wait alike."""
        return index(list(self.slowdowns.values()))

    def row(self):
        cells = [f"{hours(percentile(self.waits[kind], 0.5))} / {hours(mean(self.waits[kind]))} / "
                 f"{hours(percentile(self.waits[kind], 0.95))}" for kind in CLASSES]  # fmt: skip
        return [
            self.name,
            f"{self.utilisation:.1%}",
            *cells,
            " ".join(f"{slow:.1f}" for _, slow in sorted(self.slowdowns.items())),
            f"{self.fairness:.2f}",
            str(self.preempted),
            str(self.left),
        ]


def simulate(name, days, seed, load, fifo):
    jobs = a_month(days, seed, load)
    cluster = Cluster(jobs, fifo)
    until = START + days * DAY
    cluster.run(until)
    waits, slow = defaultdict(list), defaultdict(list)
    for work in jobs:
        # A job that still waits at the end has waited until then.
        waited = work.waited if work.waited is not None else until - work.came
        waits[work.kind].append(waited)
        slow[work.asked.project].append((waited + work.lasts) / max(work.lasts, 600.0))
    by_day = [cluster.busy[day] / (HOSTS * GPUS * DAY) for day in range(int(days))]
    left = sum(work.waited is None for work in jobs)
    return Month(
        name, by_day, waits, {project: mean(each) for project, each in slow.items()}, left, cluster.preempted
    )


def mean(values):
    return sum(values) / len(values)


def hours(seconds):
    return f"{seconds / HOUR:.1f} h" if seconds >= HOUR else f"{seconds / 60:.0f} min"


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.bench.simulate", description=__doc__)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--load", type=float, default=0.9, help="what is asked for, of what there is")
    parser.add_argument("--plot", type=Path, help="an SVG file to write")
    options = parser.parse_args()
    months = [
        simulate(name, options.days, options.seed, options.load, fifo)
        for name, fifo in (("first come, first served", True), ("Trainyard", False))
    ]
    names = ["", "utilisation", *(f"wait of {kind}: median / mean / 95 %" for kind in CLASSES)]
    print(" | ".join([*names, "slowdown by project", "fairness", "preempted", "never started"]))
    for month in months:
        print(" | ".join(month.row()))
    if options.plot:
        bars = {kind: [mean(month.waits[kind]) / HOUR for month in months] for kind in CLASSES}
        options.plot.write_text(
            drawing([month.name for month in months], bars, [month.by_day for month in months])
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
