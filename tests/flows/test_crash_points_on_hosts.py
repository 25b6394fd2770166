"""The runner's own points: its server and its keepers are killed, or stopped past the death of the link, at each."""

from __future__ import annotations

import itertools
import signal
import time

import pytest

from agents.runner.failpoints import RUNNER_FAILPOINTS
from tests.flows.scenes import stopped_on
from tests.harness.product import job_spec
from tests.harness.product.client import TERMINAL
from tests.harness.shell import wait_for

POINTS = RUNNER_FAILPOINTS
# A stop that arrives before its start makes the directory that stands in the start's way.
TOMBSTONE = "after_tombstone"
ARMED_PER_HOST = 2
# For a harness that hangs. Seen: 40 s by kill, 80 s by stop.
WALK_S = 600

pytestmark = [pytest.mark.needs_namespaces, pytest.mark.timeout(WALK_S + 200)]


@pytest.fixture(scope="module")
def shape():
    return "apart"


class Sleepers:
    """Who stands still on the hosts, and since when."""

    def __init__(self, hosts, patience):
        self.hosts = hosts
        self.patience = patience
        self.since = {}

    def wake_the_late(self):
        for host in self.hosts:
            for pid in stopped_on(host):
                began = self.since.setdefault((host.name, pid), time.monotonic())
                if time.monotonic() - began > self.patience:
                    host.run_inside("kill", f"-{signal.SIGCONT.value}", str(pid), check=False)
                    del self.since[host.name, pid]

    def any(self):
        return any(stopped_on(host) for host in self.hosts)


class Gangs:
    """Jobs with a replica on each host, so that whoever is armed is come by: two with 5 GPUs never share a host.

    In turn: one that ends by itself, one that is cancelled while it runs, and one that is cancelled before its hosts
    have heard of it.
    """

    def __init__(self, yard):
        self.yard = yard
        self.job = None
        self.turns = itertools.cycle((self.short, self.stubborn, self.overtaken))

    def send_more(self):
        state = self.job and self.yard.client.state(self.job, patience=60)
        if state in {*TERMINAL, None}:
            next(self.turns)()
        elif state == "RUNNING" and self.to_be_cancelled:
            self.yard.client.cancel(self.job, patience=60)
            self.to_be_cancelled = False

    def submit(self, *words):
        pool = {"command": ["replica", *words], "gpus": 5}
        others = {**pool, "replicas": len(self.yard.fleet.hosts) - 1}
        self.job = self.yard.submit(job_spec(pool, others, name=words[0]), patience=60)
        self.to_be_cancelled = False

    def short(self):
        self.submit("--seconds", "0.3")

    def stubborn(self):
        self.submit("--ignore-term", "--seconds", "900")
        self.to_be_cancelled = True

    def overtaken(self):
        """No dispatcher is awake until the stop is wanted, so it is the first that the hosts are told of."""
        if not any(TOMBSTONE in host.armed() for host in self.yard.fleet):
            return
        extras = [pid for role, pid in self.yard.extras if role == "dispatcher"]
        dispatchers = self.yard.processes.of("dispatcher") + extras
        for pid in dispatchers:
            self.yard.processes.pause_one(pid)
        try:
            self.submit("--seconds", "0.3")
            runs = self.yard.runs
            wait_for(lambda: runs(self.job), "it to be placed", timeout=60, dump=self.yard.tail)
            self.yard.client.cancel(self.job, patience=60)
            wait_for(
                lambda: all(run["stop_wanted_at"] for run in runs(self.job)),
                "a stop to be wanted",
                timeout=60,
                dump=self.yard.tail,
            )
        finally:
            self.yard.processes.resume(*dispatchers)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_the_runner_dies_at_each_point(yard, how):
    sleepers = Sleepers(yard.fleet.hosts, float(yard.settings["LINK_DEAD_S"]) + 1)
    gangs, waiting, hosts = Gangs(yard), list(POINTS), itertools.cycle(yard.fleet.hosts)
    deadline = time.monotonic() + WALK_S
    while waiting or any(host.armed() for host in yard.fleet) or sleepers.any():
        host = next(hosts)
        if waiting and len(host.armed()) < ARMED_PER_HOST:
            host.arm(waiting.pop(0), how)
        sleepers.wake_the_late()
        gangs.send_more()
        time.sleep(0.1)
        left = {host.name: host.armed() for host in yard.fleet}
        assert time.monotonic() < deadline, f"nobody came to {left}; not tried: {waiting}\n{yard.tail()}"
    if gangs.to_be_cancelled:
        yard.client.cancel(gangs.job, patience=60)
    yard.check(f"after a {how} at each point of the runner")
