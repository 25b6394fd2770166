"""G12 on real hosts: any one host of a gang is lost while the gang starts. No replica lives twice, and all start."""

from __future__ import annotations

import pytest

from tests.flows.running_jobs import LongJob, replica_process, stopped_on
from tests.harness.product.collect import processes_on
from tests.harness.wait_and_processes import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.needs_namespaces]
NAMES = ("workerpool0-0", "workerpool1-0", "workerpool1-1")


@pytest.fixture(autouse=True)
def mended(yard):
    yield
    for host in yard.fleet:
        host.disarm()
        host.heal()
        let_go(host)


def let_go(host):
    for pid in stopped_on(host):
        host.run_inside("kill", "-CONT", str(pid), check=False)


@pytest.fixture
def hasty(yard):
    """hasty() restarts the console with a start deadline of one second, and returns a function that undoes that."""

    def patient():
        if yard.settings.pop("START_S", None):
            yard.stop()
            yard.start()

    def hurry():
        yard.settings["START_S"] = "1"
        yard.stop()
        yard.start()
        return patient

    yield hurry
    patient()
    yard.wait_for_hosts("up")


class Starting(LongJob):
    """A gang of three; its k-th replica is suspended on its host just before its program is executed."""

    def __init__(self, yard, k, gpus):
        for host in yard.fleet:
            host.arm("before_gate", "stop")
        super().__init__(yard, replicas=3, gpus=gpus, name=f"gang {k}")
        for host in yard.fleet:
            wait_for(lambda host=host: stopped_on(host), f"a keeper of {host.name} to stand still")
        self.k = NAMES[k]
        self.first = self.run(self.k)
        self.lost = self.host(self.k)
        for host in yard.fleet:
            if host is not self.lost:
                let_go(host)
        for name in NAMES:
            if name != self.k:
                yard.client.wait_for_log(self.id, "line 0 at", name)
        assert yard.client.state(self.id) == "PENDING"

    def judged(self):
        """Run the job to its end, check every invariant, and return the starts by replica."""
        for name in NAMES:
            self.yard.client.wait_for_log(self.id, "line 0 at", name)
        self.succeeded()
        self.yard.check()
        starts = [start.removeprefix(f"{self.id}-") for start in self.starts()]
        assert len(starts) == len(set(starts))
        return sorted(starts)


@pytest.mark.parametrize("k", [0, *(pytest.param(k, marks=pytest.mark.exhaustive) for k in (1, 2))])
def test_a_host_that_dies_while_its_gang_starts_begins_again_with_what_it_lost(yard, k):
    """The host's first process is killed, so the whole host is gone at once. The other replicas wait."""
    job = Starting(yard, k, gpus=5)
    job.lost.reboot(hard=True)
    job.running()
    told = yard.query(f"SELECT cause FROM jobs_transition WHERE job_id = {job.id} AND subject = '{job.k}'")
    assert any("restart 1 of 5" in row["cause"] for row in told), told
    [old] = [run for run in yard.runs(job.id) if run["id"] == job.first["id"]]
    assert (old["why"], old["started_at"]) == ("reboot", None)
    again = [f"{job.k}-a1-r1" if name == job.k else f"{name}-a1-r0" for name in NAMES]
    assert job.judged() == sorted(again)


def test_a_host_that_is_unreachable_while_its_gang_starts_is_waited_for_or_declared_gone(yard, client):
    """The order had arrived: the replica may live there. No other run of it begins before that one is proved over."""
    job = Starting(yard, 1, gpus=5)
    lost, old = job.lost, job.first["id"]
    lost.blackhole()
    let_go(lost)
    yard.wait_for_hosts("unreachable", lost.name)
    wait_for(lambda: "UNREACHABLE" in job.flags(), "the job to say so", dump=yard.tail)
    wait_for(lambda: replica_process(lost, old), "the replica to live unheard")
    assert client.state(job.id) == "PENDING" and len(yard.runs(job.id)) == 3
    client.call("POST", f"{yard.url}/api/v1/hosts/{lost.name}:declareGone", json={"name": lost.name})
    client.wait(job.id, "QUEUED")
    [row] = yard.query(f"SELECT attempt, job_retries, internal_tries FROM jobs_job WHERE id = {job.id}")
    assert (row["attempt"], row["job_retries"], row["internal_tries"]) == (2, 0, 0)
    assert replica_process(lost, old), "the lost host has no order to stop yet"
    lost.heal()
    job.running()
    walls = lambda run: [line["wall"] for line in yard.ledger(job.id) if line["run"] == run]  # noqa: E731
    again = wait_for(lambda: walls(f"{job.id}-{job.k}-a2-r0"), "the next life to begin")
    assert max(walls(old)) < min(again), "two lives of one replica at the same time"
    assert job.judged() == sorted(f"{name}-a{attempt}-r0" for name in NAMES for attempt in (1, 2))


def test_a_gang_whose_host_is_unreachable_past_the_deadline_starts_again_once_it_is_proved_over(
    yard, client, hasty
):
    """The order had arrived: the replica may live there, so the job does not start again while that is unknown."""
    job = Starting(yard, 1, gpus=5)
    lost, old = job.lost, job.first["id"]
    lost.blackhole()
    let_go(lost)
    yard.wait_for_hosts("unreachable", lost.name)
    wait_for(lambda: replica_process(lost, old), "the replica to live unheard")
    assert len(yard.runs(job.id)) == 3 and client.state(job.id) == "PENDING"
    patient = hasty()
    held = f"SELECT id FROM jobs_run WHERE job_id = {job.id} AND released_at IS NULL"
    wait_for(
        lambda: [row["id"] for row in yard.query(held)] == [old], "all else to be given back", dump=yard.tail
    )
    for host in yard.fleet:
        if host is not lost:
            wait_for(lambda host=host: not processes_on(host), f"{host.name} to be empty", dump=yard.tail)
    assert {"UNREACHABLE", "STOPPING"} <= set(job.flags()) and client.state(job.id) == "PENDING"
    assert replica_process(lost, old) and [row["id"] for row in yard.query(held)] == [old]
    patient()
    lost.heal()
    job.running()
    moves = f"SELECT cause FROM jobs_transition WHERE job_id = {job.id} AND subject = 'job' AND to_state = 'QUEUED'"
    told = [row["cause"] for row in yard.query(moves)]
    assert any(f"{lost.name} did not start {job.k} (no answer since " in cause for cause in told), told
    walls = lambda run: [line["wall"] for line in yard.ledger(job.id) if line["run"] == run]  # noqa: E731
    again = wait_for(lambda: walls(f"{job.id}-{job.k}-a2-r0"), "the next life to begin")
    assert max(walls(old)) < min(again), "two lives of one replica at the same time"
    assert job.judged() == sorted(f"{name}-a{attempt}-r0" for name in NAMES for attempt in (1, 2))
