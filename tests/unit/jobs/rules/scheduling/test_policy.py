"""What every decision about the queue must keep, compared with slow and simple code for the same rules."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from jobs.rules.scheduling import resource_requests
from jobs.rules.scheduling.order import in_order
from jobs.rules.scheduling.policy import AFTER_TIMEOUT_S, BEHIND, ClusterView, decide_queue
from tests.unit.jobs.rules.simulated_cluster import (
    KIND,
    NOW,
    PORTS,
    TIMEOUTS,
    SimulatedCluster,
    claims,
    could_ever,
    fits_beside,
    host,
    job,
    jobs,
    simulated_clusters,
    slow_order,
    unlimited,
)
from tests.unit.jobs.rules.views import examples


def all_claims(cluster):
    return [claim for each in cluster.running() for claim in each.claims]


def submit_all(cluster, waiting):
    for each in waiting:
        cluster.submit(each)
    return cluster


# -- how many in one pass --


def test_trials_without_parameters_do_not_use_up_what_a_pass_may_place():
    """They do not start, and the next pass would find the same ones again."""
    cluster = SimulatedCluster([host(1, gpus=8), host(2, gpus=8)])
    undrawn = [job(number, undrawn=True) for number in range(1, 6)]
    ready = [job(number) for number in range(6, 9)]
    placed, more = placed_at_most(2, cluster, undrawn + ready)
    assert (placed, more) == ([1, 2, 3, 4, 5, 6, 7], True)
    assert placed_at_most(2, cluster, undrawn) == ([1, 2, 3, 4, 5], False)


def placed_at_most(most, cluster, waiting):
    seen = ClusterView(cluster.hosts, PORTS)
    decision = decide_queue(seen, waiting, unlimited(), NOW, most)
    return [each.job for each, _ in decision.placed], decision.more


# -- never over, never partial --


@examples(120)
@given(simulated_clusters(limit=st.sampled_from([None, 2, 5])), jobs(first=50))
def test_no_host_and_no_quota_is_ever_exceeded_and_nothing_is_placed_in_part(cluster, waiting):
    submit_all(cluster, waiting)
    before = all_claims(cluster)
    used = Counter(
        {
            KIND: sum(
                resource_requests.decode_request(each.request).gpus.get(KIND, 0)
                for each, _, _ in cluster.placed_jobs.values()
                if each.project == 1
            )
        }
    )
    decision = cluster.decide()
    placed = [claim for each, placements in decision.placed for claim in claims(each, placements)]
    for view in cluster.hosts:
        here = [claim for claim in before + placed if claim.host == view.id]
        assert sum(claim.cpus for claim in here) <= view.cpus
        assert sum(claim.gpus for claim in here) <= len(view.gpus)
    placements = [placement for _, placements in decision.placed for placement in placements]
    placements += [placement for _, placements, _ in cluster.placed_jobs.values() for placement in placements]
    gpus = [uuid for placement in placements for uuid in placement.gpus]
    ports = [(placement.host_id, placement.port) for placement in placements]
    assert len(gpus) == len(set(gpus)) and len(ports) == len(set(ports))
    for each, of in decision.placed:
        assert [placement.replica for placement in of] == [
            replica.replica for replica in resource_requests.decode_request(each.request).replica_requests()
        ]
        assert all(
            len(placement.gpus) == replica.needs.gpus
            for placement, replica in zip(
                of, resource_requests.decode_request(each.request).replica_requests(), strict=True
            )
        )
    mine = sum(
        resource_requests.decode_request(each.request).gpus.get(KIND, 0)
        for each, _ in decision.placed
        if each.project == 1
    )
    assert cluster.limit is None or mine == 0 or used[KIND] + mine <= cluster.limit
    answered = set(decision.waits) | {each.job for each, _ in decision.placed}
    assert answered == set(cluster.waiting), "every job has placements or a reason"


# -- the order of rows does not matter --


@examples(60)
@given(
    simulated_clusters(limit=st.sampled_from([None, 3])), jobs(first=50), st.randoms(use_true_random=False)
)
def test_the_order_of_rows_changes_nothing(cluster, waiting, dice):
    submit_all(cluster, waiting)
    once = cluster.decide()
    cluster_view, rows = cluster.cluster_view(), list(cluster.waiting.values())
    views, running = list(cluster_view.hosts), list(cluster_view.running)
    for each in (views, running, rows):
        dice.shuffle(each)
    again = decide_queue(
        replace(cluster_view, hosts=views, running=running), rows, cluster.ledger, cluster.now
    )
    assert (again.placed, again.waits, again.starts, again.preempted) == (
        once.placed,
        once.waits,
        once.starts,
        once.preempted,
    )


@examples(80)
@given(simulated_clusters(), jobs(12))
def test_the_order_equals_that_of_the_slow_computation(cluster, waiting):
    held = {1: 3.0}
    assert in_order(waiting, cluster.shares, held) == slow_order(waiting, cluster.shares, held)


# -- backfill --


@examples(120)
@given(simulated_clusters(), jobs(first=50, spot=st.just(False)))
def test_backfill_never_delays_the_first_that_is_blocked(cluster, waiting):
    """With the jobs behind it or without them it has the same start; and at that moment there really is capacity."""
    for each in list(cluster.placed_jobs.values()):
        cluster.placed_jobs[each[0].job] = (each[0]._replace(spot=False), *each[1:])
    submit_all(cluster, waiting)
    decision = cluster.decide()
    if not decision.reserved:
        return
    first = decision.reserved[0]
    line = in_order(waiting, cluster.shares, cluster.cluster_view().held)
    ahead = line[: [each.job for each in line].index(first.job) + 1]
    alone = decide_queue(cluster.cluster_view(), ahead, unlimited(), cluster.now).reserved[0]
    assert first.at == alone.at
    still = [claim for each in cluster.running() if each.ends > first.at for claim in each.claims]
    for each, placements in decision.placed:
        if cluster.now + each.timeout_s + AFTER_TIMEOUT_S > first.at:
            still += claims(each, placements)
    assert fits_beside(cluster.hosts, still, cluster.waiting[first.job])


@examples(120)
@given(simulated_clusters(), jobs(1, first=50, spot=st.just(False)))
def test_a_reservation_is_for_the_first_moment_at_which_there_is_room(cluster, waiting):
    cluster.placed_jobs = {
        number: (each[0]._replace(spot=False), *each[1:]) for number, each in cluster.placed_jobs.items()
    }
    submit_all(cluster, waiting)
    (each,) = waiting
    moments = [cluster.now, *sorted({running.ends for running in cluster.running()})]
    slow = next(
        (
            at
            for at in moments
            if fits_beside(
                cluster.hosts,
                [c for r in cluster.running() if r.ends > at or at == cluster.now for c in r.claims],
                each,
            )
        ),
        None,
    )
    decision = cluster.decide()
    if slow == cluster.now:
        assert [placed.job for placed, _ in decision.placed] == [each.job]
    else:
        assert [kept.at for kept in decision.reserved] == ([] if slow is None else [slow])


def test_a_short_job_passes_and_a_long_one_does_not():
    cluster = SimulatedCluster([host(1, 4), host(2, 4)])
    cluster.submit(job(1, (1, 4), timeout_s=3_600))
    assert len(cluster.step().placed) == 1
    for each in (
        job(2, (2, 4)),
        job(3, (1, 4), timeout_s=7_200),
        job(4, (1, 1), timeout_s=600),
        job(5, (1, 0), timeout_s=9e5),
    ):
        cluster.submit(each)
    decision = cluster.step()
    assert {each.job for each, _ in decision.placed} == {4, 5}
    assert "gpu1 frees by" in decision.waits[2].text and "1 host has room now" in decision.waits[2].text
    assert "at the latest" not in decision.waits[2].text, "the page shows that from `starts`"
    assert decision.waits[3] == BEHIND
    assert decision.reserved[0].at == NOW + 3_600 + AFTER_TIMEOUT_S <= decision.starts[2]


def test_the_rest_beside_a_reservation_is_placed_once():
    cluster = SimulatedCluster([host(1, 4)])
    cluster.submit(job(1, (1, 2), timeout_s=3_600))
    cluster.step()
    for each in (job(2, (1, 3)), job(3, (1, 1), timeout_s=9e5), job(4, (1, 1), timeout_s=9e5)):
        cluster.submit(each)
    assert [each.job for each, _ in cluster.step().placed] == [3]
    assert set(cluster.waiting) == {2, 4} and not cluster.decide().placed


def test_a_reservation_counts_on_nothing_that_is_promised_to_another_kind_of_job():
    cluster = SimulatedCluster([host(1, 4)])
    cluster.submit(job(1, (1, 4, 8), timeout_s=3_600))
    cluster.step()
    cluster.submit(job(2, (1, 4, 8), timeout_s=600))
    cluster.submit(job(3, (1, 0, 8)))  # needs CPUs only, which is another family
    frees, lasts = NOW + 3_600 + AFTER_TIMEOUT_S, 600 + AFTER_TIMEOUT_S
    assert [(kept.job, kept.at) for kept in cluster.decide().reserved] == [(2, frees), (3, frees + lasts)]


# -- no job starves --


@examples(60)
@given(simulated_clusters(), jobs(10, first=50))
def test_every_job_that_could_ever_run_is_started_in_time(cluster, waiting):
    submit_all(cluster, waiting)
    able = {each.job for each in waiting if could_ever(cluster.hosts, each)}
    everything = sum(each.timeout_s + AFTER_TIMEOUT_S for each in waiting)
    everything += max([0.0, *(ends - cluster.now for _, _, ends in cluster.placed_jobs.values())])
    began = cluster.now
    for _ in range(200):
        stopped = [cluster.waiting[one.job] for one in cluster.step().preempted]
        # They run again from the start.
        everything += sum(each.timeout_s + AFTER_TIMEOUT_S for each in stopped)
        able -= set(cluster.started)
        # What a stopped job held is free at once, so the next pass is at the same moment.
        if not able or not (stopped or cluster.next_end()):
            break
    assert not able and cluster.now - began <= everything


@examples(40)
@given(st.integers(1, 3), st.lists(TIMEOUTS, min_size=12, max_size=20))
def test_a_large_job_is_not_passed_for_ever_by_small_ones_that_keep_coming(wide, timeouts):
    """Small jobs keep coming; the large one starts by the first moment that was promised."""
    cluster = SimulatedCluster([host(number, 4) for number in range(1, wide + 2)])
    for number in range(4 * wide):
        cluster.submit(job(number + 1, (1, 1), timeout_s=timeouts[number]))
    cluster.step()
    cluster.submit(job(100, (wide + 1, 4)))
    decision = cluster.step()
    promised = decision.starts.get(100, cluster.now)
    for number, timeout_s in enumerate(timeouts * 3):
        cluster.submit(job(200 + number, (1, 1), timeout_s=timeout_s))
        cluster.step()
        if 100 in cluster.started or not cluster.next_end():
            break
    while 100 not in cluster.started and cluster.next_end():
        cluster.step()
    assert cluster.started[100] <= promised


# -- preemption --


@examples(150)
@given(simulated_clusters(), jobs(3, first=50))
def test_only_spot_jobs_are_stopped_and_only_where_it_helps(cluster, waiting):
    submit_all(cluster, waiting)
    running = {each.job: each for each in cluster.running()}
    decision = cluster.decide()
    by = {}
    for one in decision.preempted:
        assert running[one.job].spot and not cluster.waiting[one.by].spot
        by.setdefault(one.by, []).append(one.job)
    assert len({one.job for one in decision.preempted}) == len(decision.preempted)
    if not by:
        return
    first = next(iter(by))
    gone = set(by[first])
    placed = [claim for each, placements in decision.placed for claim in claims(each, placements)]

    def fits(without):
        left = [claim for each in running.values() if each.job not in without for claim in each.claims]
        return fits_beside(cluster.hosts, left + placed, cluster.waiting[first])

    assert fits(gone), "it would start"
    assert not fits(set()), "it needs them"


@examples(80)
@given(simulated_clusters(), jobs(1, first=50, spot=st.just(False)))
def test_no_more_are_stopped_than_needed(cluster, waiting):
    submit_all(cluster, waiting)
    (each,) = waiting
    running = {one.job: one for one in cluster.running()}
    gone = {one.job for one in cluster.decide().preempted}
    for kept in gone:
        left = [c for one in running.values() if one.job not in gone - {kept} for c in one.claims]
        assert not fits_beside(cluster.hosts, left, each)
    rest = [c for one in running.values() if not one.spot for c in one.claims]
    could = fits_beside(cluster.hosts, rest, each)
    assert bool(gone) == (
        could and not fits_beside(cluster.hosts, [c for o in running.values() for c in o.claims], each)
    )


def test_the_youngest_spot_job_makes_room_and_does_not_take_its_place_back():
    cluster = SimulatedCluster([host(1, 2)])
    cluster.submit(job(1, (1, 1), spot=True))
    cluster.step()
    cluster.now += 60
    cluster.submit(job(2, (1, 1), spot=True))
    cluster.step()
    cluster.now += 60
    cluster.submit(job(3, (1, 1)))
    decision = cluster.step()
    assert [(one.job, one.by) for one in decision.preempted] == [(2, 3)]
    assert "being made free" in decision.waits[3].text
    assert [each.job for each, _ in cluster.step().placed] == [3] and set(cluster.waiting) == {2}


def test_victims_are_minimal_when_young_and_large_ones_compete():
    cluster = SimulatedCluster([host(1, 4)])
    for number, gpus in ((1, 2), (2, 1), (3, 1)):
        cluster.submit(job(number, (1, gpus), spot=True))
        cluster.step()
        cluster.now += 60
    cluster.submit(job(4, (1, 3)))
    assert {one.job for one in cluster.step().preempted} == {1, 3}
    assert [each.job for each, _ in cluster.step().placed] == [4]


def test_no_job_is_stopped_for_a_job_that_would_not_get_the_place():
    """The freed GPUs would go to the job before it: it would go on waiting, and the SPOT job was stopped in vain."""
    cluster = SimulatedCluster([host(1, 4), host(2, 4), host(3, 4)])
    for each in (job(1, (1, 4), timeout_s=1_000), job(2, (1, 4), timeout_s=2_000)):
        cluster.submit(each)
    cluster.submit(job(3, (1, 4), spot=True, timeout_s=9e5))
    cluster.step()
    cluster.submit(job(4, (2, 4)))
    cluster.submit(job(5, (1, 4), timeout_s=9e6))
    assert not cluster.step().preempted and set(cluster.waiting) == {4, 5}


def test_while_victims_are_being_stopped_no_other_job_is_stopped():
    cluster = SimulatedCluster([host(1, 1), host(2, 1)])
    for number in (1, 2):
        cluster.submit(job(number, (1, 1), spot=True))
    cluster.step()
    cluster.submit(job(3, (1, 1)))
    cluster_view = cluster.cluster_view()
    stopping = [each._replace(stopping=each.job == 1, ends=NOW + 30) for each in cluster_view.running]
    decision = decide_queue(
        replace(cluster_view, running=stopping), list(cluster.waiting.values()), unlimited(), NOW
    )
    assert not decision.preempted and decision.reserved[0].at == NOW + 30
