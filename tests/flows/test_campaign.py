"""A seeded fault campaign: jobs run while processes, links, hosts, disks and services fail; the invariants hold.

CAMPAIGN_S is its length in seconds (30). SEED repeats a campaign: the same choices, with the timing of this machine.
"""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.flows.test_crash_points import Waker
from tests.harness import seeds
from tests.harness.product import job_spec
from tests.harness.product.client import TERMINAL
from tests.harness.product.observers import JobWatcher

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs_namespaces,
    pytest.mark.timeout(600 + int(os.environ.get("CAMPAIGN_S", "30"))),
]

CAMPAIGN_S = float(os.environ.get("CAMPAIGN_S", "30"))
SEED = seeds.draw()
MAX_JOBS_AT_ONCE = 8
OPTIONS = ([], ["--mb", "2"], ["--ignore-term"], ["--daemons", "2"], ["--exit", "3"], ["--exit", "6"])


@pytest.fixture(scope="module")
def shape():
    return "apart"


class Nemesis:
    """Breaks something now and then, and repairs it after a while. In the main thread, because it boots hosts."""

    def __init__(self, yard, dice):
        self.yard = yard
        self.dice = dice
        self.mends = []  # (when, what to do)
        self.broken = set()  # hosts that are in trouble: one trouble at a time each
        self.story = []

    def strike(self):
        faults = (
            self.kill,
            self.stop,
            self.cut,
            self.hole,
            self.reboot,
            self.fill_disk,
            self.redis,
            self.postgres,
        )
        chosen = self.dice.choices(faults, weights=(6, 3, 3, 2, 1, 1, 2, 1))[0]
        self.story.append(f"{chosen.__name__}{' ' + told if (told := chosen()) else ''}")

    def later(self, seconds, what):
        self.mends.append((time.monotonic() + seconds, what))

    def mend(self, everything=False):
        now = time.monotonic()
        due = [each for each in self.mends if everything or each[0] <= now]
        self.mends = [each for each in self.mends if each not in due]
        for _, what in due:
            what()

    def some_process(self):
        """Choose any process of the product: one of `up`, or the extra dispatcher or worker."""
        roles = ("web", "worker", "dispatcher", "beat")
        pids = [pid for role in roles for pid in self.yard.processes.of(role)]
        return self.dice.choice(pids + [pid for _, pid in self.yard.extras])

    def kill(self):
        self.yard.processes.kill_one(self.some_process())

    def stop(self):
        """Suspend a process until past its lease; the waker resumes it then."""
        self.yard.processes.pause_one(self.some_process())

    def some_host(self):
        well = [host for host in self.yard.fleet if host.name not in self.broken]
        return self.dice.choice(well) if well else None

    def trouble(self, begin, end, seconds):
        host = self.some_host()
        if host is None:
            return "no host: all have a fault already"
        self.broken.add(host.name)
        begin(host)

        def over():
            end(host)
            self.broken.discard(host.name)

        self.later(seconds, over)
        return host.name

    def cut(self):
        return self.trouble(lambda host: host.cut(), lambda host: host.restore(), self.dice.uniform(0.2, 8))

    def hole(self):
        return self.trouble(lambda host: host.blackhole(), lambda host: host.heal(), self.dice.uniform(2, 12))

    def fill_disk(self):
        return self.trouble(
            lambda host: host.fill_disk(), lambda host: host.free_disk(), self.dice.uniform(1, 5)
        )

    def reboot(self):
        hard = self.dice.random() < 0.5
        return self.trouble(lambda host: host.reboot(hard), lambda host: None, 1.0)

    def redis(self):
        how = self.dice.choice(("flush", "kill"))
        if how == "flush":
            self.yard.redis.flush()
        else:
            self.yard.redis.kill()
            self.yard.redis.start()
        return how

    def postgres(self):
        self.yard.postgres.kill()
        self.yard.postgres.start()


class Load:
    """Submits jobs of every kind, at most a few at a time, and cancels some of them."""

    def __init__(self, yard, dice):
        self.yard = yard
        self.dice = dice
        self.known = []

    def submit(self):
        states = {job_id: self.yard.client.state(job_id, patience=90) for job_id in self.known}
        self.known = [job_id for job_id in self.known if states[job_id] not in TERMINAL]
        if len(self.known) < MAX_JOBS_AT_ONCE:
            self.known.append(self.yard.submit(self.some_spec(), patience=90))

    def some_spec(self):
        seconds = ["--seconds", f"{self.dice.uniform(0.2, 6):.1f}"]
        options = self.dice.choice(
            ([], ["--mb", "2"], ["--ignore-term"], ["--daemons", "2"], ["--exit", "3"], ["--exit", "6"])
        )
        pool = {"command": ["replica", *seconds, *options], "gpus": self.dice.choice((0, 1, 3, 8))}
        more = self.dice.choice((0, 0, 1, 2))
        return job_spec(*[pool, {**pool, "replicas": more}][: 1 + bool(more)], name="campaign")

    def cancel(self):
        if self.known:
            self.yard.client.cancel(self.dice.choice(self.known), patience=90)


def test_a_campaign_ends_in_the_invariants(yard, request):
    seeds.keep(request.node.nodeid, SEED)
    print(f"SEED={SEED} CAMPAIGN_S={CAMPAIGN_S:.0f}", flush=True)
    dice = random.Random(SEED)
    load, nemesis = Load(yard, dice), Nemesis(yard, dice)
    ends = time.monotonic() + CAMPAIGN_S
    try:
        with Waker(yard) as waker, JobWatcher(yard, SEED):
            while time.monotonic() < ends:
                dice.choices((load.submit, load.cancel, nemesis.strike), weights=(6, 1, 2))[0]()
                yard.replace_dead_extras()
                nemesis.mend()
                time.sleep(dice.uniform(0, 0.4))
            nemesis.mend(everything=True)
            waker.wait_until_all_are_awake()
            yard.check(f"of the campaign with SEED={SEED}")
    except BaseException:
        print(f"SEED={SEED}; what happened: {'; '.join(nemesis.story)}", flush=True)
        raise
    finally:
        nemesis.mend(everything=True)
    print(f"{len(yard.accepted)} jobs, {len(nemesis.story)} faults", flush=True)
