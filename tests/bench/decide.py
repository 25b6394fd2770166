"""The time of one scheduling decision: 1,000 hosts with 8,000 GPUs, and more and more waiting jobs."""

from __future__ import annotations

import json
import math
import random
import time

from jobs.rules.scheduling.fairness import Share
from jobs.rules.scheduling.order import WaitingJob
from jobs.rules.scheduling.policy import ClusterView, decide_queue
from jobs.rules.scheduling.quota import Limits, QuotaAccount, QuotaLedger
from jobs.rules.scheduling.running_jobs import HostClaim, RunningJob
from jobs.rules.scheduling.views import GpuView, HostView
from tests.bench.figures import Figure, percentile, short

NOW = 1_900_000_000.0
KIND = "NVIDIA_H100_80GB"
HOSTS, GPUS, PROJECTS, PEOPLE = 1_000, 8, 20, 100
SIZES = (100, 1_000, 10_000)
TIMEOUTS = (600.0, 3_600.0, 86_400.0, 604_800.0)
MAX_MS = 100.0
# How much is in use, and how many kinds of GPUs there are: each kind is a queue of its own.
MIXES = (
    ("every GPU taken", 1.0, 1),
    ("one in eight GPUs free", 0.875, 1),
    ("40 kinds of GPUs, all taken", 1.0, 40),
    ("40 kinds, one in eight free", 0.875, 40),
)


def decide(options):
    """Measure processor time, so that other work of the machine does not count."""
    for words, busy, kinds in MIXES:
        p50 = {}
        for size in SIZES:
            world = a_world(size, busy, kinds)
            p50[size] = percentile([once(world) for _ in range(3 if options.quick else 9)], 0.5)
        told = ", ".join(f"{short(p50[size])} ms" for size in SIZES)
        last, before = SIZES[-1], SIZES[-2]
        # The reference: the time for a tenth of the jobs, scaled by n log n.
        grown = p50[before] * (last * math.log(last)) / (before * math.log(before))
        yield Figure(
            f"one decision, {words}: {', '.join(f'{size:,}' for size in SIZES)} jobs wait",
            told,
            f"n log n from {before:,}: {short(grown)} ms",
            p50[last] / grown,
            f"≤ {MAX_MS:g} ms, ≤ n log n",
            p50[last] <= MAX_MS and p50[last] <= grown,
        )


def once(world):
    cluster, waiting = world
    accounts = {
        number: QuotaAccount(f"project p{number}", Limits({KIND: 4_000})) for number in range(PROJECTS)
    }
    ledger = QuotaLedger(accounts)
    begin = time.process_time()
    decide_queue(cluster, waiting, ledger, NOW)
    return (time.process_time() - begin) * 1000


def a_world(size, busy, kinds=1, seed=1):
    dice = random.Random(seed)
    hosts, running = [], []
    for number in range(HOSTS):
        kind = kind_of(number % kinds)
        gpus = tuple(GpuView(f"GPU-{number}-{index}", kind, index) for index in range(GPUS))
        used = 0
        while used < GPUS and dice.random() < (1.0 if busy == 1.0 else busy):
            count = min(dice.choice((1, 1, 2, 4, 8)), GPUS - used)
            ends = NOW + dice.choice(TIMEOUTS) * dice.random()
            claim = HostClaim(number, 8.0 * count, 0, kind, count)
            running.append(
                RunningJob(len(running), ends, (claim,), dice.random() < 0.1, NOW - dice.random() * 86_400)
            )
            used += count
        taken = frozenset(gpu.uuid for gpu in gpus[:used])
        hosts.append(HostView(number, f"h{number}", "lab", "a", 96.0, 2_000_000, gpus, 8.0 * used, 0, taken))
    shares = {number: Share(dice.choice((1.0, 2.0)), dice.random() * 1e7) for number in range(PROJECTS)}
    waiting = [a_job(1_000_000 + number, dice, kinds) for number in range(size)]
    return ClusterView(hosts, range(20_000, 30_000), running, shares), waiting


def kind_of(number):
    return KIND if number == 0 else f"{KIND}_{number}"


def a_job(number, dice, kinds=1):
    kind = kind_of(dice.randrange(kinds) if kinds > 1 else 0)
    gpus, replicas = dice.choice((1, 1, 1, 2, 4, 8, 8)), dice.choice((1, 1, 1, 1, 2, 4, 8, 16, 32))
    pools = [[0, 1, 8.0, 0, kind, gpus], *([[1, replicas - 1, 8.0, 0, kind, gpus]] if replicas > 1 else [])]
    return WaitingJob(
        number,
        dice.randrange(PROJECTS),
        dice.randrange(PEOPLE),
        "lab",
        json.dumps(pools),
        dice.choice(TIMEOUTS),
        dice.choice((0, 0, 0, 0, 100, -100)),
        dice.random() < 0.1,
    )
