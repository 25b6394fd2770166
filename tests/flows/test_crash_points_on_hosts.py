"""The runner's own points: its server and its keepers are killed, or stopped past the death of the link, at each."""

from __future__ import annotations

import contextlib
import itertools
import signal
import time

import pytest

from agents.runner import RUNNER_FAILPOINTS
from tests.flows.scenes import stopped_on
from tests.flows.test_crash_points import Passers
from tests.harness.product import job_spec
from tests.harness.shell import wait_for

pytestmark = pytest.mark.needs_namespaces

WALK_S = 240


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


def a_stop_overtakes_its_start(yard, passers):
    """Cancelled before any dispatcher has heard of it: the first that the host is told of the run is a stop.

    One job for each host, by what they ask for: whoever is armed is come by.
    """
    dispatchers = yard.processes.of("dispatcher") + [pid for role, pid in yard.extras if role == "dispatcher"]
    for pid in dispatchers:
        yard.processes.pause_one(pid)
    try:
        pool = {"command": ["replica", "--seconds", "0.3"], "gpus": 5}
        jobs = [yard.submit(job_spec(pool, name="overtaken"), patience=60) for _ in yard.fleet.hosts]
        with contextlib.suppress(AssertionError):
            wait_for(lambda: all(yard.runs(job_id) for job_id in jobs), "them to be placed", timeout=2)
        for job_id in jobs:
            yard.client.cancel(job_id, patience=60)
    finally:
        yard.processes.resume(*dispatchers)
    passers.running.update(dict.fromkeys(jobs, "overtaken"))


# Whether a stop overtakes its start is chance here; that point is walked in tests/runner/test_adopt.py.
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_the_runner_dies_at_each_point(yard, how):
    sleepers = Sleepers(yard.fleet.hosts, float(yard.settings["LINK_DEAD_S"]) + 1)
    passers, waiting, hosts = (
        Passers(yard),
        [point for point in RUNNER_FAILPOINTS if "tombstone" not in point],
        itertools.cycle(yard.fleet.hosts),
    )
    deadline = time.monotonic() + WALK_S
    while waiting or any(host.armed() for host in yard.fleet) or sleepers.any():
        host = next(hosts)
        if waiting and len(host.armed()) < 2:
            host.arm(waiting.pop(0), how)
        sleepers.wake_the_late()
        passers.send_more()
        if not waiting:
            a_stop_overtakes_its_start(yard, passers)
        time.sleep(0.1)
        left = {host.name: host.armed() for host in yard.fleet}
        assert time.monotonic() < deadline, f"nobody came to {left}; not tried: {waiting}\n{yard.tail()}"
    passers.finish()
    yard.check(f"after a {how} at each point of the runner")
