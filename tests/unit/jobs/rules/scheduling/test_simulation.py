"""The simulated starts are those at which a cluster that goes on starts the jobs."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from jobs.rules.scheduling.fairness import Share
from jobs.rules.scheduling.policy import AFTER_TIMEOUT_S
from jobs.rules.scheduling.simulation import starts
from tests.unit.jobs.rules.simulated_cluster import (
    NOW,
    SimulatedCluster,
    host,
    job,
    unlimited,
)
from tests.unit.jobs.rules.views import examples

HOUR = 3_600.0
sizes = st.sampled_from([(1, 1), (1, 2), (1, 4), (2, 2), (3, 4), (1, 0)])


@st.composite
def queues(draw):
    return [
        job(
            number,
            draw(sizes),
            timeout_s=draw(st.sampled_from([600.0, 1_800.0, 7_200.0])),
            project=draw(st.integers(1, 3)),
            priority=draw(st.sampled_from([0, 0, 0, 100])),
        )
        for number in range(1, draw(st.integers(2, 14)))
    ]


def lived(cluster):
    """When each job of the queue started, as the cluster went on until all had."""
    began = {}
    while True:
        for each, _ in cluster.step().placed:
            began[each.job] = cluster.now
        if not cluster.next_end():
            return began


def simulated(cluster, **more):
    return starts(cluster.cluster_view(), list(cluster.waiting.values()), cluster.ledger, cluster.now, **more)


@examples(60)
@given(queues(), st.sampled_from([None, 3, 6]))
def test_what_is_told_is_what_then_happens(queue, limit):
    """With fair shares, gangs, backfill, priorities and a quota; each job runs to its limit."""
    shares = {1: Share(1.0, 5_000.0), 2: Share(2.0)}
    cluster = SimulatedCluster([host(1), host(2), host(3)], shares, limit)
    for each in queue[: len(queue) // 2]:
        cluster.submit(each)
    cluster.step()
    cluster.now += 100.0
    for each in queue[len(queue) // 2 :]:
        cluster.submit(each)
    told = simulated(cluster)
    assert told == lived(cluster)


def test_jobs_that_end_before_their_limits_let_others_start_sooner():
    cluster = SimulatedCluster([host(1)])
    cluster.submit(job(1, (1, 4), timeout_s=HOUR))
    cluster.step()
    for number in (2, 3):
        cluster.submit(job(number, (1, 4), timeout_s=HOUR))
    limit = HOUR + AFTER_TIMEOUT_S
    assert simulated(cluster) == {2: NOW + limit, 3: NOW + 2 * limit}
    soon = simulated(cluster, ends={1: NOW + 60.0}, lasts=lambda job: 600.0)
    assert soon == {2: NOW + 60.0, 3: NOW + 660.0}


def test_a_job_that_no_host_here_can_hold_is_left_out():
    cluster = SimulatedCluster([host(1)])
    cluster.submit(job(1, (2, 4), timeout_s=HOUR))
    assert simulated(cluster) == {}


def test_bounded_work_tells_starts_late_and_never_early():
    cluster = SimulatedCluster([host(number) for number in range(1, 6)])
    for number in range(1, 6):
        cluster.submit(job(number, (1, 4), timeout_s=600.0 * number))
    cluster.step()
    for number in range(6, 26):
        cluster.submit(job(number, (1, 4), timeout_s=600.0 * (number % 7 + 1)))
    exact = simulated(cluster)
    size = 5 + 5 + 20
    rough = simulated(cluster, max_work=12 * size)
    assert len(exact) == 20 and len(rough) >= 10
    assert all(rough[each] >= exact[each] for each in rough) and rough != {
        each: exact[each] for each in rough
    }
    assert simulated(cluster, max_work=size) == {}


def test_the_caller_keeps_its_ledger_and_its_hosts():
    cluster = SimulatedCluster([host(1)], limit=4)
    cluster.submit(job(1, (1, 4), timeout_s=HOUR))
    ledger = cluster.ledger
    before = replace(ledger.projects[1].use, gpus=dict(ledger.projects[1].use.gpus))
    assert starts(cluster.cluster_view(), list(cluster.waiting.values()), ledger, NOW)
    assert ledger.projects[1].use.running == before.running and unlimited().refusal(1, 1, {}) is None
