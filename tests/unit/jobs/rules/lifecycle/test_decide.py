"""One decision at a time: from what is true to what should be changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.rules.lifecycle.decide import LOOK_AGAIN_RUNNING_S, LOOK_AGAIN_S, decide, timeout_left_s
from jobs.rules.lifecycle.plan import NOTHING, Stop, UnprovedRun
from jobs.rules.lifecycle.retry import EndClass, failed
from jobs.rules.lifecycle.states import TERMINAL, FlagName, JobState, ReplicaState, RunPhase
from jobs.rules.lifecycle.views import Outcome
from tests.unit.jobs.rules.views import GRACE_S, NOW, after, applied, ended, job, placed, queued, run_of, spec

P, W0, W1 = "workerpool0-0", "workerpool1-0", "workerpool1-1"


def settled(view, now=NOW):
    """The job after its plan. A second decision must change nothing."""
    plan = decide(view, now, GRACE_S)
    done = applied(view, plan, now)
    assert decide(done, now, GRACE_S) == NOTHING
    return plan, done


def moves(plan):
    return [(event.from_state, event.to_state) for event in plan.events if event.subject == "job"]


def flag_names(view):
    return {flag.name for flag in view.flags}


# -- starting --


def test_a_job_runs_when_all_replicas_are_up_and_not_before():
    view = job(run_of(P), run_of(W0), run_of(W1, RunPhase.CLAIMED, started_at=None), state=JobState.PENDING)
    plan, view = settled(view)
    assert (view.state, view.started_at) == (JobState.PENDING, None)
    view = replace(view, runs=(*view.runs[:2], run_of(W1)))
    plan, view = settled(view, after(5))
    assert (view.state, view.started_at, plan.cause) == (JobState.RUNNING, after(5), "All 3 replicas are up.")


def test_the_first_run_that_is_late_is_the_moment_to_look_again_and_to_begin_anew():
    """The deadline of a start is that of the run that has waited longest, whichever replica was restarted meanwhile."""
    again = replace(run_of(W0, RunPhase.CREATED, number=1), created_at=after(30))
    view = job(run_of(P), again, run_of(W1, RunPhase.CLAIMED, started_at=None), state=JobState.PENDING)
    view = replace(view, start_limit_s=40.0)
    plan, view = settled(view, after(35))
    assert (plan.state, plan.due_at) == (None, after(40))
    assert settled(view, after(39.5))[1].outcome is None
    plan, view = settled(view, after(40))
    assert view.outcome.state == JobState.QUEUED
    assert {stop.run for stop in plan.stop} == {run.id for run in view.runs}
    assert "did not start workerpool1-1" in plan.cause and W0 not in plan.cause


def test_replicas_show_their_own_state_while_others_are_still_starting():
    view = placed(queued(spec(1, 2)))
    seen = (run_of(P), run_of(W0, RunPhase.CLAIMED, started_at=None), run_of(W1, RunPhase.CREATED))
    plan, view = settled(replace(view, runs=seen))
    assert plan.replica_states == {P: ReplicaState.RUNNING}
    assert [(event.subject, event.cause, event.host_at) for event in plan.events] == [
        (P, f"Started on host-of-{P}.", NOW)
    ]


def test_a_worker_that_is_done_already_counts_as_up():
    view = job(run_of(P), ended(W0, exit_code=0), run_of(W1), state=JobState.PENDING)
    assert settled(view)[1].state == JobState.RUNNING


def test_a_job_that_is_over_before_anyone_looked_has_run_all_the_same():
    plan, view = settled(job(ended(exit_code=0), state=JobState.PENDING))
    assert moves(plan) == [("PENDING", "RUNNING"), ("RUNNING", "SUCCEEDED")]
    assert (plan.started_at, plan.ended_at, plan.due_at) == (NOW, NOW, None)
    assert view.replicas[0].state == ReplicaState.FINISHED


def test_the_primary_may_succeed_before_a_slow_peer_is_up():
    view = job(ended(P, exit_code=0), run_of(W0), run_of(W1, RunPhase.CREATED), state=JobState.PENDING)
    plan, view = settled(view)
    assert {stop.run for stop in plan.stop} == {view.runs[1].id, view.runs[2].id}
    closed = (
        view.runs[0],
        ended(W0, why="stop", stop_wanted_at=NOW),
        ended(W1, why="tombstone", stop_wanted_at=NOW),
    )
    plan, view = settled(replace(view, runs=closed))
    assert moves(plan) == [("PENDING", "SUCCEEDED")]


# -- ending --


def test_success_is_decided_at_once_and_reached_when_every_run_is_closed():
    view = job(ended(P, phase=RunPhase.ENDED, exit_code=0), run_of(W0), run_of(W1))
    plan, view = settled(view)
    assert (view.state, view.outcome) == (JobState.RUNNING, Outcome(JobState.SUCCEEDED))
    assert plan.stop == tuple(Stop(run.id, GRACE_S, plan.cause) for run in view.runs[1:])
    assert flag_names(view) == {FlagName.STOPPING, FlagName.CLEANING}
    assert {replica.name: replica.state for replica in view.replicas} == {
        P: ReplicaState.FINISHED,
        W0: ReplicaState.STOPPING,
        W1: ReplicaState.STOPPING,
    }
    stopped = [ended(name, why="stop", exit_signal=15, stop_wanted_at=NOW) for name in (W0, W1)]
    almost = replace(view, runs=(ended(P, exit_code=0), stopped[0], view.runs[2]))
    assert settled(almost)[1].state == JobState.RUNNING
    plan, view = settled(replace(view, runs=(ended(P, exit_code=0), *stopped)), after(3))
    assert (view.state, plan.ended_at, view.flags, view.due_at) == (JobState.SUCCEEDED, after(3), (), None)


def test_errors_of_peers_after_the_primary_left_are_no_error_of_the_job():
    view = job(ended(P, exit_code=0), ended(W0, exit_code=1), ended(W1, exit_signal=6))
    assert decide(view, NOW, GRACE_S).state == JobState.SUCCEEDED


def test_an_outcome_once_decided_stays():
    view = job(
        ended(P, exit_code=0),
        ended(W0, exit_code=1),
        outcome=Outcome(JobState.FAILED, 3, "text"),
        of=spec(1, 1),
    )
    assert decide(view, NOW, GRACE_S).state == JobState.FAILED


def test_replicas_that_failed_beside_the_first_are_named_until_the_end_is_reached():
    first = failed([(ended(W0, exit_code=5), EndClass.USER_ERROR)])
    pools = {"of": spec(1, 2), "outcome": first}
    beside = job(run_of(P, stop_wanted_at=NOW), ended(W0, exit_code=5), ended(W1, exit_code=7), **pools)
    plan = decide(beside, NOW, GRACE_S)
    assert plan.outcome.message == (
        "The replica workerpool1-0 exited with a non-zero status of 5. Termination reason: Error. "
        "The replica workerpool1-1 exited with a non-zero status of 7. Termination reason: Error."
    )
    assert decide(applied(beside, plan), NOW, GRACE_S).outcome is None
    stopped = ended(W1, why="stop", exit_code=7, stop_wanted_at=NOW)
    primary = ended(P, why="stop", stop_wanted_at=NOW)
    assert decide(job(primary, ended(W0, exit_code=5), stopped, **pools), NOW, GRACE_S).outcome is None


def test_a_terminal_job_never_changes_but_its_last_run_may_still_close():
    for state in TERMINAL:
        view = job(ended(P, exit_code=0), run_of(W0, stop_wanted_at=NOW), of=spec(1, 1), state=state)
        view = replace(view, replicas=tuple(replace(r, state=ReplicaState.STOPPING) for r in view.replicas))
        view = replace(view, runs=(view.runs[0], ended(W0, why="reboot", stop_wanted_at=NOW)))
        plan, view = settled(replace(view, cancel_requested_at=NOW, flags=(), due_at=None))
        assert plan == replace(NOTHING, replica_states=plan.replica_states, events=plan.events)
        assert plan.replica_states == {P: ReplicaState.FINISHED, W0: ReplicaState.STOPPED}


def test_old_facts_do_not_move_a_replica_backwards():
    view = job(run_of(), replicas={P: {"state": ReplicaState.FINISHED}}, outcome=Outcome(JobState.SUCCEEDED))
    assert P not in decide(view, NOW, GRACE_S).replica_states


# -- unreachable hosts --


def test_an_unreachable_host_is_a_flag_and_never_a_failure():
    view = job(run_of(P), run_of(W0, unreachable_since=after(-900)), run_of(W1))
    plan, view = settled(view, after(3600))
    assert (plan.state, plan.outcome, plan.stop, plan.restart) == (None, None, (), ())
    assert [(flag.name, flag.since) for flag in view.flags] == [(FlagName.UNREACHABLE, after(3600))]
    assert view.flags[0].text == f"No answer from host-of-{W0} since 2026-11-21 11:45:00 UTC ({W0})."
    plan, view = settled(replace(view, runs=tuple(replace(run, unreachable_since=None) for run in view.runs)))
    assert view.flags == ()


def test_a_job_ends_beside_a_run_whose_host_does_not_answer():
    view = job(ended(P, exit_code=0), run_of(W0, unreachable_since=NOW), of=spec(1, 1))
    plan, view = settled(view)
    assert view.state == JobState.SUCCEEDED
    assert [stop.run for stop in plan.stop] == [view.runs[1].id], "it is stopped when its host is back"
    assert view.replicas[1].state == ReplicaState.STOPPING
    assert plan.left == (UnprovedRun(view.runs[1].id, NOW),)


@pytest.mark.parametrize("decided", [False, True])
@pytest.mark.parametrize(
    ("ends", "told", "once_decided"),
    [
        ({"exit_code": 0}, "The primary,", "and all that could be reached is stopped."),
        ({"exit_code": 7}, f"{P} exited with status 7", "exited with a non-zero status of 7."),
        ({}, "Cancelled by alice.", "Cancelled, and all that could be reached is stopped."),
    ],
)
def test_the_line_about_the_end_names_runs_that_are_not_proved_closed(ends, told, once_decided, decided):
    """The line about the end says what may still live, where, and since when; the job's error stays as it is."""
    asked = {} if ends else {"cancel_requested_at": NOW, "cancel_requested_by": "alice"}
    primary = ended(P, **(ends or {"exit_signal": 15, "why": "stop", "stop_wanted_at": NOW}))
    one = run_of(W0, unreachable_since=after(-900))
    two = replace(run_of(W1, unreachable_since=NOW), host="far")
    view = job(primary, one, run_of(W1), **asked)
    if decided:
        view = settled(view)[1]
        assert view.state not in TERMINAL and view.outcome
    before = view.outcome
    plan, view = settled(
        replace(view, runs=(primary, *(replace(each, stop_wanted_at=NOW) for each in (one, two))))
    )
    assert view.state in TERMINAL and plan.left == (
        UnprovedRun(one.id, after(-900)),
        UnprovedRun(two.id, NOW),
    )
    assert (once_decided if decided else told) in plan.cause
    assert plan.cause.endswith(
        f". No answer from far since 2026-11-21 12:00:00 UTC, host-of-{W0} since 2026-11-21 11:45:00 UTC"
        f" ({W0}, {W1}). What may still live there is stopped as soon as its host answers."
    )
    assert before in (None, view.outcome) and "answer" not in view.outcome.message


def test_a_job_that_goes_on_leaves_no_run():
    """An unreachable host alone, or beside a host that answers and is not yet done, ends nothing."""
    silent = run_of(W0, unreachable_since=NOW)
    for runs in ((run_of(P), silent), (ended(P, exit_code=0), silent, run_of(W1))):
        plan, view = settled(job(*runs, of=spec(1, len(runs) - 1)))
        assert view.state == JobState.RUNNING and plan.left == ()


def test_a_whole_job_is_not_run_again_while_an_old_run_may_still_live():
    view = job(ended(P, exit_code=134), run_of(W0, unreachable_since=NOW), of=spec(1, 1))
    plan, view = settled(view)
    assert (view.outcome.state, view.attempt) == (JobState.QUEUED, 1)
    assert settled(view, after(86_400))[1].attempt == 1
    view = replace(view, runs=(view.runs[0], ended(W0, why="reboot", stop_wanted_at=NOW)))
    plan, view = settled(view)
    assert (view.state, view.attempt, view.job_retries, view.outcome) == (JobState.QUEUED, 2, 1, None)
    assert {replica.state for replica in view.replicas} == {ReplicaState.WAITING}


def test_processes_that_cannot_be_killed_keep_the_job_open_and_are_shown():
    view = job(ended(P, exit_code=0), run_of(W0, stop_wanted_at=NOW, survivors=2), of=spec(1, 1))
    view = settled(view)[1]
    assert view.state == JobState.RUNNING
    assert f"2 of {W0} on host-of-{W0}" in next(
        flag.text for flag in view.flags if flag.name == FlagName.STUCK
    )


def test_a_run_of_an_older_attempt_is_stopped_and_its_end_does_not_count():
    old = run_of(W0, number=3)
    view = job(run_of(P, attempt=2), run_of(W0, attempt=2), old, of=spec(1, 1), attempt=2)
    assert (
        decide(replace(view, runs=(*view.runs[:2], ended(W0, exit_code=1, number=3))), NOW, GRACE_S).outcome
        is None
    )
    plan, view = settled(replace(view, runs=(ended(P, exit_code=0, attempt=2), *view.runs[1:])))
    assert old.id in {stop.run for stop in plan.stop}


def test_a_flag_keeps_its_since_when_while_its_text_changes():
    view = job(ended(P, exit_code=0), run_of(W0), run_of(W1))
    view = settled(view)[1]
    first = view.flags[0]
    view = settled(replace(view, runs=(*view.runs[:2], ended(W1, why="stop", stop_wanted_at=NOW))), after(9))[
        1
    ]
    assert view.flags[0].since == first.since and view.flags[0].text != first.text


# -- cancel --


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.RUNNING])
def test_cancel_stops_everything_and_names_the_person(state):
    view = job(
        run_of(P),
        run_of(W0),
        of=spec(1, 1),
        state=state,
        cancel_requested_at=NOW,
        cancel_requested_by="alice",
    )
    plan, view = settled(view)
    assert (view.state, plan.actor, plan.cause) == (JobState.CANCELLING, "alice", "Cancelled by alice.")
    assert len(plan.stop) == 2
    view = replace(view, runs=tuple(ended(name, why="stop", stop_wanted_at=NOW) for name in (P, W0)))
    plan, view = settled(view)
    assert (view.state, plan.actor, view.outcome) == (
        JobState.CANCELLED,
        "alice",
        Outcome(JobState.CANCELLED, 1, "CANCELED"),
    )


def test_a_waiting_job_is_cancelled_at_once():
    plan, view = settled(queued(cancel_requested_at=NOW, cancel_requested_by="alice"))
    assert (moves(plan), plan.ended_at) == ([("QUEUED", "CANCELLED")], NOW)


def test_cancel_wins_over_everything_that_is_not_yet_decided():
    for facts in (
        {"exit_code": 0},
        {"exit_code": 1},
        {"exit_code": 134},
        {"why": "reboot"},
        {"why": "timeout"},
    ):
        plan = decide(job(ended(**facts), cancel_requested_at=NOW), NOW, GRACE_S)
        assert (plan.state, plan.restart) == (JobState.CANCELLED, ()), facts
    again = Outcome(JobState.QUEUED, 0, "again")
    plan, view = settled(job(ended(exit_code=134), outcome=again, cancel_requested_at=NOW))
    assert (view.state, view.attempt) == (JobState.CANCELLED, 1)
    plan, view = settled(
        job(ended(exit_code=0), outcome=Outcome(JobState.SUCCEEDED), cancel_requested_at=NOW)
    )
    assert view.state == JobState.SUCCEEDED


# -- clocks --


def test_the_timeout_cancels_with_an_error_that_says_so():
    of = spec(1, timeout_s=30.0)
    assert settled(job(run_of(), of=of), after(29))[1].due_at == after(30)
    plan, view = settled(job(run_of(), of=of), after(30))
    assert (view.state, len(plan.stop)) == (JobState.CANCELLING, 1)
    assert view.outcome.message == "The job was cancelled because it ran longer than its timeout of 30s."
    assert plan.actor == "trainyard"


def test_the_timeout_counts_from_the_first_run_even_if_the_job_waits_again():
    view = replace(queued(spec(1, timeout_s=30.0)), started_at=NOW, attempt=2)
    assert settled(view, after(10))[1].due_at == after(30)
    assert settled(view, after(30))[1].state == JobState.CANCELLED


def test_peers_that_fail_from_a_timeout_are_its_consequence_but_an_old_error_is_not_hidden_by_it():
    of = spec(1, 1, timeout_s=30.0)
    late = job(ended(P, exit_code=1), ended(W0, why="timeout"), of=of)
    assert decide(late, after(31), GRACE_S).state == JobState.CANCELLED
    early = job(run_of(P), ended(W0, exit_code=1), of=of)
    assert decide(early, after(3600), GRACE_S).outcome.state == JobState.FAILED


def test_a_host_enforces_what_is_left_of_the_timeout_a_little_later_than_the_console():
    of = spec(1, timeout_s=30.0)
    assert timeout_left_s(of, None, after(99)) == 35.0
    assert timeout_left_s(of, NOW, after(20)) == 15.0
    assert timeout_left_s(of, NOW, after(99)) == 5.0


def test_waiting_too_long_for_capacity_is_tried_three_times_again_and_then_fails():
    view, now = queued(spec(1, max_wait_duration_s=60.0)), NOW
    assert settled(view)[1].due_at == after(60)
    for attempt in (2, 3, 4):
        assert settled(view, now)[1].state == JobState.QUEUED
        now = after(60 * (attempt - 1))
        plan, view = settled(view, now)
        assert (view.state, view.attempt, view.job_retries) == (JobState.QUEUED, attempt, attempt - 1)
    plan, view = settled(view, after(240))
    assert (view.state, view.outcome.code) == (JobState.FAILED, 8)
    assert view.outcome.message.startswith(
        "Resources are insufficient in region: lab-a. Try a different region"
    )


def test_a_job_without_a_limit_waits_for_ever_and_is_never_due():
    assert decide(queued(), after(1e8), GRACE_S) == NOTHING


def test_a_job_that_ran_and_failed_unseen_knows_its_timeout_in_the_queue():
    view = job(ended(exit_code=134), state=JobState.PENDING, of=spec(1, timeout_s=30.0))
    view = settled(view)[1]
    assert (view.state, view.attempt, view.started_at, view.due_at) == (JobState.QUEUED, 2, NOW, after(30))


def test_every_placed_job_is_looked_at_again_even_if_no_hint_comes():
    assert settled(placed(queued()))[1].due_at == after(LOOK_AGAIN_S)
    assert settled(job(run_of()))[1].due_at == after(LOOK_AGAIN_RUNNING_S)
    due_now = replace(job(run_of()), due_at=NOW)
    assert settled(due_now)[1].due_at == after(LOOK_AGAIN_RUNNING_S), "a due row is pushed ahead"
    assert decide(replace(job(run_of()), due_at=after(9)), NOW, GRACE_S) == NOTHING, "an earlier look stays"


# -- restarts --


def test_a_lost_replica_is_restarted_once_its_old_run_is_proved_clean():
    view = job(run_of(P), ended(W0, phase=RunPhase.ENDED, exit_signal=9), of=spec(1, 1))
    plan, view = settled(view)
    assert (plan.restart, view.replicas[1].state) == ((), ReplicaState.STARTING)
    assert flag_names(view) == {FlagName.RESTARTING, FlagName.CLEANING}
    plan, view = settled(replace(view, runs=(run_of(P), ended(W0, exit_signal=9))))
    assert plan.restart[0].cause == f"{W0} was killed by SIGKILL on host-of-{W0}; restart 1 of 5."
    assert [event.cause for event in plan.events] == [plan.restart[0].cause]
    assert (view.state, view.replicas[1].restarts, view.runs[2].number) == (JobState.RUNNING, 1, 1)
    plan, view = settled(replace(view, runs=(*view.runs[:2], run_of(W0, number=1))))
    assert (view.replicas[1].state, view.flags) == (ReplicaState.RUNNING, ())


def test_only_the_latest_run_of_a_replica_counts():
    view = job(ended(P, exit_signal=9), run_of(P, number=1))
    assert decide(view, NOW, GRACE_S).restart == ()
    assert decide(replace(view, runs=view.runs[::-1]), NOW, GRACE_S).restart == ()


def test_the_sixth_loss_runs_the_whole_job_again():
    view = job(run_of(P), ended(W0, why="lost"), of=spec(1, 1), replicas={W0: {"restarts": 5}})
    plan, view = settled(view)
    assert (view.outcome.state, view.job_retries, view.state) == (JobState.QUEUED, 1, JobState.RUNNING)
    assert view.replicas[1].state == ReplicaState.FAILED
    plan, view = settled(replace(view, runs=(ended(P, why="stop", stop_wanted_at=NOW), view.runs[1])))
    assert (view.attempt, view.replicas[1].restarts, plan.next_attempt) == (2, 0, True)


def test_all_replicas_restart_together_when_the_job_asks_for_it():
    of = spec(1, 2, restart_job_on_worker_restart=True)
    view = job(run_of(P), ended(W0, why="reboot"), run_of(W1), of=of)
    plan, view = settled(view)
    assert ({stop.run for stop in plan.stop}, plan.restart) == ({view.runs[0].id, view.runs[2].id}, ())
    closed = [ended(name, why="stop", stop_wanted_at=NOW) for name in (P, W1)]
    plan, view = settled(replace(view, runs=(closed[0], view.runs[1], view.runs[2])))
    assert plan.restart == (), "one of them still lives"
    assert view.replicas[0].state == ReplicaState.STARTING
    plan, view = settled(replace(view, runs=(closed[0], view.runs[1], closed[1])))
    assert [again.replica for again in plan.restart] == [P, W0, W1]
    assert [replica.restarts for replica in view.replicas] == [1, 1, 1]
    assert view.state == JobState.RUNNING and not view.outcome


def test_a_replica_that_is_done_cannot_be_restarted_in_its_place_so_the_whole_job_is_run_again():
    of = spec(1, 2, restart_job_on_worker_restart=True)
    plan = decide(job(run_of(P), ended(W0, why="reboot"), ended(W1, exit_code=0), of=of), NOW, GRACE_S)
    assert (plan.outcome.state, plan.job_retries, plan.restart) == (JobState.QUEUED, 1, ())


def test_the_primary_may_still_succeed_while_all_are_being_restarted():
    of = spec(1, 1, restart_job_on_worker_restart=True)
    view = job(ended(P, exit_code=0), ended(W0, why="reboot"), of=of)
    assert decide(view, NOW, GRACE_S).state == JobState.SUCCEEDED


@pytest.mark.parametrize("phase", [RunPhase.CREATED, RunPhase.CLAIMED, RunPhase.RUNNING])
def test_no_attempt_begins_beside_a_run_on_an_unreachable_host(phase):
    """Even a run that its host never reported may live: its start order may have arrived just before."""
    silent = run_of(W0, phase, unreachable_since=NOW, stop_wanted_at=NOW)
    again = Outcome(JobState.QUEUED, 0, "again")
    view = job(ended(P, exit_code=134), silent, of=spec(1, 1), outcome=again)
    assert not decide(view, NOW, 10).next_attempt
