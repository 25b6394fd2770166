"""A replica moves: it gets a held run on another host, all replicas stop, all start, and no restart is counted."""

from __future__ import annotations

from dataclasses import replace

from jobs.rules.lifecycle.decide import decide
from jobs.rules.lifecycle.plan import NOTHING
from jobs.rules.lifecycle.states import FlagName, JobState, ReplicaState, RunPhase
from tests.unit.jobs.rules.views import GRACE_S, NOW, after, applied, ended, hold_place, job, run_of, spec

P, W0, W1 = "workerpool0-0", "workerpool1-0", "workerpool1-1"
LEAVE_S = 30.0


def step(view, now=NOW):
    plan = decide(view, now, GRACE_S, LEAVE_S)
    done = applied(view, plan, now)
    assert decide(done, now, GRACE_S, LEAVE_S) == NOTHING
    return plan, done


def closed(view, *replicas, **facts):
    """The hosts stop the runs that they were ordered to stop."""
    facts = {"why": "stop", "exit_signal": 15, "ended_at": NOW, "closed_at": NOW, **facts}
    runs = (
        replace(run, phase=RunPhase.CLOSED, **facts)
        if run.replica in replicas and run.stop_wanted_at and not run.held
        else run
        for run in view.runs
    )
    return replace(view, runs=tuple(runs))


def flags(view):
    return {flag.name: flag.text for flag in view.flags}


def gang():
    return job(run_of(P), run_of(W0), run_of(W1), of=spec(1, 2), replicas={W1: {"restarts": 5}})


def test_one_moves_and_the_others_start_with_its_new_address():
    plan, view = step(hold_place(gang(), W0))
    assert {stop.run for stop in plan.stop} == {f"7-{name}-a1-r0" for name in (P, W0, W1)}
    assert {stop.grace_s for stop in plan.stop} == {LEAVE_S}, "time for a checkpoint"
    assert view.state == JobState.RUNNING and not plan.restart and not plan.take
    words = "workerpool1-0 moves from host-of-workerpool1-0 to gpu-02: gpu-01 is being drained by alice."
    assert flags(view)[FlagName.MAINTENANCE] == words
    plan, view = step(closed(view, P, W0))
    assert not plan.take and not plan.restart, "one still lives: two lives of a job never meet"
    plan, view = step(closed(view, W1))
    assert [(take.replica, take.run, take.counts) for take in plan.take] == [
        (W0, "7-workerpool1-0-a1-r1", False)
    ]
    assert sorted((again.replica, again.counts) for again in plan.restart) == [(P, False), (W1, False)]
    assert [replica.restarts for replica in view.replicas] == [0, 0, 5], "it counts against nothing"
    causes = {event.subject: (event.cause, event.kind) for event in plan.events}
    assert causes[W0] == (words, "drain")
    assert "new addresses of its peers" in causes[P][0] and causes[P][1] == "drain"
    assert {replica.state for replica in view.replicas} == {ReplicaState.STARTING}
    assert view.state == JobState.RUNNING and FlagName.RESTARTING in flags(view)
    up = replace(view, runs=tuple(replace(r, phase=RunPhase.RUNNING) if r.number else r for r in view.runs))
    _, view = step(up)
    assert {replica.state for replica in view.replicas} == {ReplicaState.RUNNING} and not view.flags


def test_a_job_that_is_still_starting_moves_as_well():
    view = job(
        run_of(P, RunPhase.CLAIMED), state=JobState.PENDING, replicas={P: {"state": ReplicaState.STARTING}}
    )
    _, view = step(hold_place(view, P))
    plan, view = step(closed(view, P, why="tombstone", exit_signal=None))
    assert len(plan.take) == 1 and view.state == JobState.PENDING


def test_a_finished_replica_stays_finished_while_its_peers_move():
    view = job(run_of(P), ended(W0, exit_code=0), run_of(W1), of=spec(1, 2))
    view = replace(
        view,
        replicas=tuple(replace(r, state=ReplicaState.FINISHED) if r.name == W0 else r for r in view.replicas),
    )
    _, view = step(hold_place(view, W1))
    plan, view = step(closed(view, P, W1))
    assert [take.replica for take in plan.take] == [W1] and [again.replica for again in plan.restart] == [P]
    assert view.replicas[1].state == ReplicaState.FINISHED


def test_a_replica_that_finishes_before_its_move_releases_the_held_run_and_its_peers_restart_uncounted():
    _, view = step(hold_place(gang(), W0))
    view = closed(view, P, W1)
    done = ended(W0, exit_code=0, stop_wanted_at=NOW)
    view = replace(view, runs=tuple(done if r.replica == W0 and not r.held else r for r in view.runs))
    plan = decide(view, NOW, GRACE_S, LEAVE_S)
    assert "7-workerpool1-0-a1-r1" in {stop.run for stop in plan.stop} and not plan.take
    assert sorted((again.replica, again.counts) for again in plan.restart) == [(P, False), (W1, False)]
    view = applied(view, plan)
    assert [replica.restarts for replica in view.replicas] == [0, 0, 5]


def test_a_cancel_in_the_middle_of_a_move_closes_the_new_place_too_and_waits_no_longer_than_any_cancel():
    _, view = step(hold_place(gang(), W0))
    view = replace(view, cancel_requested_at=after(1), cancel_requested_by="bob")
    plan, view = step(view, after(1))
    assert len(plan.stop) == 4 and {stop.grace_s for stop in plan.stop} == {GRACE_S}
    assert view.state == JobState.CANCELLING
    view = closed(view, P, W0, W1)
    view = replace(
        view, runs=tuple(replace(r, phase=RunPhase.CLOSED, why=r.why or "tombstone") for r in view.runs)
    )
    _, view = step(view, after(2))
    assert view.state == JobState.CANCELLED


def test_the_primarys_success_wins_over_a_move():
    _, view = step(hold_place(gang(), W0))
    success = ended(P, exit_code=0, stop_wanted_at=NOW)
    view = replace(view, runs=tuple(success if r.replica == P else r for r in view.runs))
    plan, view = step(view)
    assert view.outcome.state == JobState.SUCCEEDED and plan.stop[-1].run == "7-workerpool1-0-a1-r1"


def test_a_replica_of_a_host_that_is_gone_never_restarts_there():
    lost = ended(W0, why="lost", gone=True, message="alice declared gpu-01 gone")
    view = job(run_of(P), lost, run_of(W1), of=spec(1, 2))
    plan, view = step(view)
    assert not plan.restart and not plan.stop, "its peers go on until there is a place for it"
    assert view.replicas[1].state == ReplicaState.STARTING
    _, view = step(hold_place(view, W0, why="alice declared gpu-01 gone"))
    plan, view = step(closed(view, P, W1))
    assert [(take.replica, take.counts) for take in plan.take] == [(W0, True)]
    assert [replica.restarts for replica in view.replicas] == [0, 1, 0]


def test_the_sixth_loss_is_a_retry_of_the_job_wherever_it_was_lost():
    lost = ended(W0, why="lost", gone=True)
    plan, _ = step(job(run_of(P), lost, of=spec(1, 1), replicas={W0: {"restarts": 5}}))
    assert plan.outcome.state == JobState.QUEUED and plan.job_retries == 1


def test_a_job_that_must_leave_waits_again_and_nothing_is_counted():
    why = "gpu-01 is being drained by alice. There was no room elsewhere."
    view = replace(gang(), preempted=why, job_retries=3)
    plan, view = step(view)
    assert (plan.outcome.state, plan.outcome.message, plan.job_retries) == (JobState.QUEUED, why, None)
    assert {stop.grace_s for stop in plan.stop} == {LEAVE_S}
    plan, view = step(closed(view, P, W0, W1))
    assert (view.state, view.attempt, view.job_retries, view.preempted) == (JobState.QUEUED, 2, 3, "")
    assert [(event.cause, event.kind) for event in plan.events if event.subject == "job"] == [
        (why, "preempt")
    ]
