"""A replica is lost and its peers fail because of it: the error names the lost one, and all may restart together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.rules.lifecycle.decide import decide
from jobs.rules.lifecycle.states import JobState, RunPhase
from tests.unit.jobs.rules.views import GRACE_S, NOW, after, applied, ended, job, run_of, spec

P, W0, W1 = "workerpool0-0", "workerpool1-0", "workerpool1-1"
KILLED = {"exit_signal": 9}
PEERS = f"The replica {P} exited with a non-zero status of 1. Termination reason: Error."
FIRST = f"The replica {W0} was lost first: it was killed by SIGKILL on host-of-{W0}."


def decided(*runs, **fields):
    view = job(*runs, **fields)
    plan = decide(view, after(60), GRACE_S)
    return plan, applied(view, plan, after(60))


@pytest.mark.parametrize("seconds", [0, 1, 600])
def test_the_error_names_the_replica_that_was_lost_first(seconds):
    peer = ended(P, exit_code=1, ended_at=after(seconds))
    plan, view = decided(peer, ended(W0, **KILLED), run_of(W1))
    assert view.outcome.message == f"{FIRST} {PEERS}"
    assert plan.cause.startswith(f"{W0} was killed by SIGKILL") and P in plan.cause


@pytest.mark.parametrize(
    ("lost", "code"), [(KILLED, 3), ({"exit_code": 143}, 3), ({"why": "lost"}, 14), ({"why": "reboot"}, 14)]
)
def test_the_errors_of_the_peers_of_a_replica_that_its_host_lost_are_no_mistake_in_the_job(lost, code):
    _, view = decided(ended(P, exit_code=1, ended_at=after(1)), ended(W0, **lost), run_of(W1))
    assert (view.outcome.state, view.outcome.code) == (JobState.FAILED, code)


def test_a_loss_that_is_reported_after_the_peers_error_completes_the_message():
    """The host of the lost replica may be slower: its report comes when the job is already ending."""
    plan, view = decided(ended(P, exit_code=1, ended_at=after(1)), run_of(W0), run_of(W1))
    assert view.outcome.message == PEERS
    assert {run.stop_wanted_at for run in view.runs if run.replica == W0} == {after(60)}
    killed = ended(W0, **KILLED, stop_wanted_at=after(60))
    view = replace(view, runs=tuple(killed if run.replica == W0 else run for run in view.runs))
    done = applied(view, decide(view, after(61), GRACE_S), after(61))
    assert done.outcome.message == f"{FIRST} {PEERS}"
    assert decide(done, after(61), GRACE_S).outcome is None, "it is said once"


def test_a_replica_that_was_restarted_meanwhile_is_still_the_cause():
    again = replace(run_of(W0, number=1), created_at=after(2))
    _, view = decided(ended(P, exit_code=1, ended_at=after(300)), ended(W0, **KILLED), again, run_of(W1))
    assert view.outcome.message.startswith(FIRST)


@pytest.mark.parametrize(
    "lost",
    [
        # Long before, after the error, and stopped by us.
        ended(W0, **KILLED, ended_at=after(-3600)),
        ended(W0, **KILLED, ended_at=after(30)),
        ended(W0, why="stop", stop_wanted_at=NOW),
        ended(W0, why="reboot", stop_wanted_at=NOW, ended_at=None),
        # An error of its own, which fails the job by itself.
        run_of(W0),
    ],
)
def test_what_cannot_be_the_cause_is_not_named(lost):
    _, view = decided(ended(P, exit_code=1, ended_at=after(10)), lost, run_of(W1))
    assert view.outcome.message == PEERS


def test_peers_that_began_after_the_loss_are_not_excused():
    again = replace(run_of(W0, number=1), created_at=after(2))
    late = replace(ended(P, exit_code=1, ended_at=after(10)), number=1, created_at=after(2))
    _, view = decided(late, ended(W0, **KILLED), again, run_of(W1))
    assert view.outcome.message == PEERS


def test_of_several_errors_the_first_one_is_named_first():
    runs = (ended(P, exit_code=1, ended_at=after(5)), ended(W0, exit_code=3, ended_at=after(1)), run_of(W1))
    _, view = decided(*runs)
    assert view.outcome.message.startswith(f"The replica {W0} exited with a non-zero status of 3.")
    assert view.outcome.message.endswith(PEERS)


TOGETHER = spec(1, 2, restart_job_on_worker_restart=True)


def test_when_all_restart_together_the_error_of_a_peer_is_no_error_of_the_job():
    runs = (ended(P, exit_code=1, ended_at=after(1)), ended(W0, **KILLED), run_of(W1))
    plan, view = decided(*runs, of=TOGETHER)
    assert view.outcome is None and [stop.run for stop in plan.stop] == [run_of(W1).id]
    stopped = tuple(
        replace(run, phase=RunPhase.CLOSED, why="stop", closed_at=after(61)) if run.replica == W1 else run
        for run in view.runs
    )
    plan = decide(replace(view, runs=stopped), after(62), GRACE_S)
    assert {each.replica for each in plan.restart} == {P, W0, W1}


def test_a_loss_that_is_reported_late_makes_the_whole_job_run_again_where_all_restart_together():
    _, view = decided(ended(P, exit_code=1, ended_at=after(1)), run_of(W0), run_of(W1), of=TOGETHER)
    assert view.outcome.state == JobState.FAILED
    runs = tuple(
        replace(run, phase=RunPhase.CLOSED, why="stop", closed_at=after(61)) if run.replica == W1 else run
        for run in view.runs
    )
    runs = tuple(ended(W0, **KILLED) if run.replica == W0 else run for run in runs)
    view = replace(view, runs=runs)
    plan = decide(view, after(62), GRACE_S)
    done = applied(view, plan, after(62))
    assert (done.state, done.attempt, done.job_retries) == (JobState.QUEUED, 2, 1)
    assert f"{W0} was killed by SIGKILL" in plan.cause


def test_an_error_without_a_loss_fails_the_job_also_where_all_restart_together():
    _, view = decided(ended(P, exit_code=1, ended_at=after(1)), run_of(W0), run_of(W1), of=TOGETHER)
    assert view.outcome.message == PEERS
