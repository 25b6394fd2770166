"""At each failpoint of the runner, `serve` or a keeper is killed, or suspended until the link is given up.

Hosts also reboot while runs are suspended at some of the failpoints.
"""

from __future__ import annotations

import itertools
import json
import signal
import time

import pytest

from agents.runner.failpoints import RUNNER_FAILPOINTS
from tests.flows.running_jobs import LongJob, stopped_on
from tests.harness.product import job_spec
from tests.harness.product.client import TERMINAL
from tests.harness.wait_and_processes import wait_for

POINTS = RUNNER_FAILPOINTS
# A stop that arrives before its start makes a directory (a tombstone) that prevents the start.
TOMBSTONE = "after_tombstone"
ENDED = "ended_at, exit_code, why, log_size, log_stored, log_digest_here, log_digest_host"
ARMED_PER_HOST = 2
# For a harness that hangs. Measured: 40 s with kill, 80 s with stop.
WALK_S = 600

pytestmark = [pytest.mark.slow, pytest.mark.needs_namespaces, pytest.mark.timeout(WALK_S + 200)]


@pytest.fixture(scope="module")
def shape():
    return "apart"


def asleep(yard):
    """Suspend all dispatchers until the end of the block."""
    found = yard.processes.of("dispatcher") + [pid for role, pid in yard.extras if role == "dispatcher"]
    for pid in found:
        yard.processes.pause_one(pid)
    return found


class Sleepers:
    """The suspended processes of the hosts, and since when."""

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
    """Jobs with a replica on each host (with 5 GPUs two never share one), so that each armed host gets a start.

    In turn: a job that ends by itself, one that is cancelled while it runs, and one that is cancelled before its hosts
    have its order.
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
        """It reports metrics, so that there is a journal of them to write."""
        self.submit("--seconds", "0.3", "--report", "30")

    def stubborn(self):
        self.submit("--ignore-term", "--seconds", "900")
        self.to_be_cancelled = True

    def overtaken(self):
        """Keep all dispatchers suspended until the stop is wanted, so that hosts get the stop before the start."""
        if not any(TOMBSTONE in host.armed() for host in self.yard.fleet):
            return
        dispatchers = asleep(self.yard)
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


@pytest.fixture(autouse=True)
def awake(yard, hosts):
    yield
    yard.processes.resume()
    for host in hosts:
        host.disarm()


def walk_on_hosts(yard, how, meanwhile=lambda: None):
    """Arm a few failpoints on each host at a time, and submit gangs until the runner has arrived at each."""
    sleepers = Sleepers(yard.fleet.hosts, float(yard.settings["LINK_DEAD_S"]) + 1)
    gangs, waiting, hosts = Gangs(yard), list(POINTS), itertools.cycle(yard.fleet.hosts)
    deadline = time.monotonic() + WALK_S
    while waiting or any(host.armed() for host in yard.fleet) or sleepers.any():
        host = next(hosts)
        if waiting and len(host.armed()) < ARMED_PER_HOST:
            host.arm(waiting.pop(0), how)
        sleepers.wake_the_late()
        gangs.send_more()
        meanwhile()
        time.sleep(0.1)
        left = {host.name: host.armed() for host in yard.fleet}
        assert time.monotonic() < deadline, f"no process reached {left}; not tried: {waiting}\n{yard.tail()}"
    if gangs.to_be_cancelled:
        yard.client.cancel(gangs.job, patience=60)


@pytest.mark.parametrize("how", ["kill", pytest.param("stop", marks=pytest.mark.exhaustive)])
def test_the_runner_is_killed_at_each_failpoint(yard, how):
    walk_on_hosts(yard, how)
    yard.check(f"after a {how} at each point of the runner")


class Single(LongJob):
    """A job of one GPU, wherever it is placed."""

    def __init__(self, yard, name, *options):
        super().__init__(yard, gpus=1, name=name, options=options)

    def comes_to(self, phase):
        self.until(lambda: self.runs() and self.run()["phase"] == phase, phase)
        return self

    def halts_at(self, point):
        """Suspend the keeper of its run at this failpoint, so that the run stays in its state."""
        self.until(lambda: self.runs() and point not in self.host().armed(), f"halted {point}")
        self.until(lambda: stopped_on(self.host()), "halted")
        for host in self.yard.fleet:
            host.disarm()
        return self

    def until(self, condition, what):
        wait_for(condition, f"the run that is {self.name} to be {what}", dump=self.yard.tail)

    def runs(self):
        return self.yard.runs(self.id)

    def on_host(self):
        """Return the facts of its run as the host has stored them."""
        [path] = self.host().path(self.host().home).glob(f".trainyard/*/runs/{self.run()['id']}/facts.json")
        return json.loads(path.read_text())

    def ends(self):
        return [(run["why"], run["exit_code"]) for run in self.runs()]

    def end_of_first(self):
        return self.yard.query(f"SELECT {ENDED} FROM jobs_run WHERE id = '{self.runs()[0]['id']}'")


def arm(hosts, point):
    for host in hosts:
        host.arm(point, "stop")


def test_a_reboot_in_each_state_of_a_run(yard, client, hosts):
    """Failure mode 18: all hosts reboot under seven runs, each in another state."""
    running = Single(yard, "running").running()
    closed = Single(yard, "closed").running().succeeded()
    closed.until(lambda: closed.run()["log_complete_at"] and not closed.run()["prove_due_at"], "proved")
    known = closed.end_of_first()
    arm(hosts, "before_gate")
    starting = Single(yard, "starting").halts_at("before_gate").comes_to("claimed")
    stopping = Single(yard, "stopping", "--ignore-term").running()
    arm(hosts, "between_term_and_kill")
    client.cancel(stopping.id)
    stopping.halts_at("between_term_and_kill")
    assert client.state(stopping.id) == "CANCELLING"
    ended, unread = Single(yard, "ended").running(), Single(yard, "ended unread").running()
    dispatchers = asleep(yard)
    arm(hosts, "before_closed")
    ended.finish()
    ended.halts_at("before_closed")
    unread.finish()
    unread.until(lambda: unread.on_host()["phase"] == "closed", "closed on its host")
    created = Single(yard, "created").comes_to("created")
    assert ended.on_host()["phase"] == "ended"
    assert (ended.run()["phase"], unread.run()["phase"]) == ("running", "running"), "no report has arrived"
    assert unread.run()["log_stored"] < unread.on_host()["log"]["size"]

    for host in hosts:
        host.reboot(hard=True)
    yard.processes.resume(*dispatchers)

    client.wait(stopping.id, "CANCELLED")
    for job in (ended, unread):
        client.wait(job.id, "SUCCEEDED")
    for job in (running, starting, created):
        job.until(lambda job=job: job.run()["phase"] == "running", "running after the boot")
        job.succeeded()
    yard.check("after a reboot")
    jobs = (running, closed, starting, stopping, ended, unread, created)
    assert closed.end_of_first() == known
    assert {job.name: job.ends() for job in jobs} == {
        "running": [("reboot", None), ("exit", 0)],
        "closed": [("exit", 0)],
        "starting": [("reboot", None), ("exit", 0)],
        "stopping": [("reboot", None)],
        "ended": [("exit", 0)],
        "ended unread": [("exit", 0)],
        "created": [("exit", 0)],
    }
    assert {job.name: len(job.starts()) for job in jobs} == {job.name: 1 + (job is running) for job in jobs}
