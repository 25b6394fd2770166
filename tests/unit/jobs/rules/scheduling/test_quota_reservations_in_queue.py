"""Jobs do not take what is kept for jobs before them: neither GPUs of any kind nor quota."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.rules.scheduling import policy as serving
from jobs.rules.scheduling.order import WaitingJob
from jobs.rules.scheduling.policy import KEPT, ClusterView, decide_queue
from jobs.rules.scheduling.quota import Limits, QuotaAccount, QuotaLedger
from jobs.rules.scheduling.running_jobs import HostClaim, RunningJob
from jobs.rules.scheduling.views import GpuView, HostView
from tests.unit.jobs.rules.simulated_cluster import (
    KIND,
    NOW,
    PORTS,
    SimulatedCluster,
    host,
    job,
    jobs,
    simulated_clusters,
    wants,
)
from tests.unit.jobs.rules.views import examples

DAY = 86_400.0
KINDS = [f"NVIDIA_K{number:02}" for number in range(30)]


def of_kind(number, kind, taken):
    gpus = tuple(GpuView(f"GPU-{number}-{index}", kind, index) for index in range(4))
    used = frozenset(gpu.uuid for gpu in gpus[:taken])
    return HostView(number, f"h{number}", "lab", "a", 64.0, 0, gpus, float(taken), 0, used)


def one(number, kind, gpus, timeout_s=3_600.0, replicas=1, **more):
    request = wants((replicas, gpus)).replace(KIND, kind)
    return WaitingJob(number, 1, 1, "lab", request, timeout_s, **more)


def many_kinds(stopping=True):
    """One host of each kind, half taken until tomorrow; and the job on the first kind is being stopped."""
    hosts = [of_kind(number, kind, 2) for number, kind in enumerate(KINDS, 1)]
    running = [
        RunningJob(
            number, NOW + DAY, (HostClaim(number, 2.0, 0, kind, 2),), stopping=stopping and number == 1
        )
        for number, kind in enumerate(KINDS, 1)
    ]
    return ClusterView(hosts, PORTS, running)


@pytest.mark.parametrize("work", [serving.MAX_WORK, 0])
def test_the_first_job_of_each_kind_gets_a_reservation_however_many_wait_before_it(work, monkeypatch):
    """Also in a pass whose budget does not suffice to search for all of them."""
    monkeypatch.setattr(serving, "MAX_WORK", work)
    monkeypatch.setattr(serving, "MAX_WHOLE_LOOKS", 0)
    before = [one(100 + number, KINDS[0], 4, DAY, 2 + number) for number in range(20)]
    firsts = [one(200 + number, kind, 4, DAY) for number, kind in enumerate(KINDS[1:])]
    behind = [one(300 + number, kind, 1, 9 * DAY) for number, kind in enumerate(KINDS[1:])]
    decision = decide_queue(many_kinds(), [*before, *firsts, *behind], QuotaLedger(), NOW)
    assert decision.placed == [], "each would be there when the first of its kind could start"
    assert len(decision.reserved) == (29 if work else 0)
    short = [each._replace(timeout_s=600.0) for each in behind]
    decision = decide_queue(many_kinds(), [*before, *firsts, *short], QuotaLedger(), NOW)
    assert len(decision.placed) == (29 if work else 0)


def test_a_job_whose_start_cannot_be_computed_reserves_nothing():
    """Hosts that they need do not answer: jobs behind them start."""
    away = [one(100 + number, KINDS[1], 4, DAY, 9 + number) for number in range(20)]
    fits = one(500, KINDS[1], 1, 9 * DAY)
    assert [each.job for each, _ in decide_queue(many_kinds(), [*away, fits], QuotaLedger(), NOW).placed] == [
        500
    ]


def test_a_spot_job_makes_room_for_the_first_of_a_kind_behind_many_others():
    cluster = many_kinds()
    spot = [each._replace(spot=each.job == 2) for each in cluster.running]
    before = [one(100 + number, KINDS[0], 4, DAY, 2 + number) for number in range(20)]
    decision = decide_queue(
        ClusterView(cluster.hosts, PORTS, spot), [*before, one(200, KINDS[1], 4, DAY)], QuotaLedger(), NOW
    )
    assert [(each.job, each.by) for each in decision.preempted] == [(2, 200)]


# -- quotas --


def test_the_quota_of_a_reserved_start_is_not_given_away_behind_it():
    cluster = SimulatedCluster([host(1, 4), host(2, 4), host(3, 4)], limit=8)
    for each in (
        job(1, (1, 3), timeout_s=9 * DAY),
        job(2, (1, 3), timeout_s=3_600, project=2),
        job(6, (1, 2), timeout_s=9 * DAY, project=2),
    ):
        cluster.submit(each)
    cluster.step()
    # Three are held, and four more will be when job 2 is over: one is left for job 4, and none for job 5.
    for each in (job(3, (1, 4)), job(4, (1, 1), timeout_s=9 * DAY), job(5, (1, 1), timeout_s=9 * DAY)):
        cluster.submit(each)
    decision = cluster.decide()
    assert [each.job for each, _ in decision.placed] == [4] and decision.waits[5] == KEPT
    assert decision.reserved[0].job == 3 and 5 in decision.over_quota


def test_a_job_over_quota_is_not_passed_for_ever_by_jobs_of_its_project():
    cluster = SimulatedCluster([host(number, 4) for number in (1, 2, 3)], limit=4)
    for number in range(4):
        cluster.submit(job(number + 1, (1, 1), timeout_s=600 + 300 * number))
    cluster.step()
    cluster.submit(job(50, (1, 4), timeout_s=600))
    last = max(ends for _, _, ends in cluster.placed_jobs.values())
    for number in range(60):
        cluster.submit(job(100 + number, (1, 1), timeout_s=400 + 50 * (number % 7)))
        cluster.step()
        if 50 in cluster.started or not cluster.next_end():
            break
    assert cluster.started[50] <= last
    assert any(number >= 100 for number in cluster.started), (
        "a job that ends before the reserved moment passes"
    )


def test_a_member_at_the_limit_keeps_nothing_from_other_members():
    accounts = {(1, 1): QuotaAccount("alice", Limits({KIND: 2}))}
    ledger = QuotaLedger({1: QuotaAccount("project one", Limits({KIND: 8}))}, accounts)
    ledger.take(1, 1, {KIND: 1})
    held = RunningJob(9, NOW + DAY, (HostClaim(1, 1.0, 0, KIND, 1),), project=1, owner=1)
    cluster = ClusterView([host(1, 4, used_gpus=frozenset({"GPU-1-0"})), host(2, 4)], PORTS, [held])
    mine, behind, short = job(20, (1, 2)), job(21, (1, 1), timeout_s=9 * DAY), job(22, (1, 1), timeout_s=60)
    bobs = job(23, (1, 4), timeout_s=9 * DAY, owner=2)
    decision = decide_queue(cluster, [mine, behind, short, bobs], ledger, NOW)
    assert [each.job for each, _ in decision.placed] == [22, 23]
    assert (
        decision.waits[20].text.startswith("Waits for quota: alice uses 1 of 2")
        and decision.waits[21] == KEPT
    )


@examples(20)
@given(simulated_clusters(limit=st.sampled_from([2, 4, 6])), jobs(6, first=50, spot=st.just(False)))
def test_within_a_quota_no_job_starves(cluster, waiting):
    """Small jobs of the project keep coming; every job that its quota and its hosts could ever hold starts."""
    for each in list(cluster.placed_jobs.values()):
        cluster.placed_jobs[each[0].job] = (each[0]._replace(spot=False), *each[1:])
    able = set()
    for each in waiting:
        cluster.submit(each._replace(project=1, priority=0))
        alone = SimulatedCluster(cluster.hosts, limit=cluster.limit)
        alone.submit(cluster.waiting[each.job])
        able |= {placed.job for placed, _ in alone.decide().placed}
    for number in range(60):
        if not any(each >= 1_000 for each in cluster.waiting):
            cluster.submit(job(1_000 + number, (1, 1), timeout_s=30_000.0 + 997 * (number % 5)))
        cluster.step()
        able -= set(cluster.started)
        if not able or not cluster.next_end():
            break
    assert not able
