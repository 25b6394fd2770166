"""The decision about a tuning job: how its trials end, when new ones are asked for, and when it ends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.rules.lifecycle.states import TERMINAL, JobState
from jobs.rules.tuning.decide import decide
from jobs.rules.tuning.ended_trials import DELETED
from jobs.rules.tuning.study import Limit, StudyStopping
from jobs.rules.tuning.trials import FINISHED, Ending, TrialState
from jobs.rules.tuning.views import Outcome
from tests.unit.jobs.rules.tuning.views import (
    NOW,
    STUDY,
    at,
    cancelled,
    failed,
    measured,
    running,
    silent,
    succeeded,
    tuning,
    waiting,
)


def ended(trial, job, **others):
    return replace(trial, job=job, job_ended_at=at(9), **others)


def change_of(trial, **others):
    return decide(tuning(trial, **others), at(10)).trials[trial.number]


def test_a_new_study_asks_for_as_many_trials_as_may_run_at_once():
    plan = decide(tuning(parallel=3), NOW)
    assert (plan.requested, plan.state, plan.outcome) == ((1, 2, 3), JobState.QUEUED, None)


def test_a_trial_that_ended_makes_room_for_the_next():
    assert decide(tuning(succeeded(1), running(2)), NOW).requested == (3,)


def test_no_more_trials_than_asked_for():
    plan = decide(tuning(succeeded(1), running(2), max_trials=2), NOW)
    assert (plan.requested, plan.outcome) == ((), None)


def test_no_more_trials_than_the_space_has_points():
    plan = decide(tuning(succeeded(1), succeeded(2), points=2), NOW)
    assert (plan.requested, plan.outcome, plan.state) == ((), Outcome(JobState.SUCCEEDED), JobState.SUCCEEDED)


def test_a_trial_that_never_had_parameters_took_no_point():
    trials = (succeeded(1), replace(cancelled(2), drawn=False), succeeded(3), waiting(4))
    assert decide(tuning(*trials, points=4, parallel=3), NOW).requested == (5,)
    assert decide(tuning(*trials, points=3, parallel=3), NOW).requested == ()
    assert decide(tuning(*trials, points=4, parallel=3, max_trials=4), NOW).requested == ()


@pytest.mark.parametrize(
    ("job", "state"),
    [("QUEUED", "QUEUED"), ("PENDING", "PENDING"), ("RUNNING", "RUNNING"), ("SUCCEEDED", "RUNNING")],
)
def test_its_state_is_that_of_its_first_trial_until_one_runs(job, state):
    trial = replace(waiting(1), drawn=True, job=JobState(job), job_started_at=at(1), job_ended_at=at(2))
    plan = decide(tuning(trial, waiting(2), state=JobState.QUEUED, started_at=None), at(3))
    assert plan.state is JobState(state)
    assert plan.started_at == (at(1) if state == "RUNNING" else None)


def test_a_running_study_never_waits_again():
    assert decide(tuning(succeeded(1), waiting(2)), NOW).state is JobState.RUNNING


def test_a_trial_is_active_when_its_parameters_are_drawn():
    assert decide(tuning(waiting(1)), NOW).trials == {}
    drawn = replace(waiting(1), drawn=True)
    assert change_of(drawn).state is TrialState.ACTIVE


def test_a_trial_with_a_measurement_succeeds():
    change = change_of(ended(running(1, measured(1, loss=0.5)), JobState.SUCCEEDED))
    assert (change.state, change.final, change.ended_at) == (
        TrialState.SUCCEEDED,
        measured(1, loss=0.5),
        at(9),
    )


def test_a_trial_is_not_over_before_all_its_reports_are_here():
    trial = ended(running(1, measured(1, loss=0.5)), JobState.SUCCEEDED, whole=False)
    plan = decide(tuning(trial, max_trials=1), at(10))
    assert (plan.trials, plan.outcome, plan.state) == ({}, None, JobState.RUNNING)


@pytest.mark.parametrize(("minute", "ends"), [(9.5, False), (10, True)])
def test_a_cancelled_study_waits_a_minute_for_the_rest_of_the_reports(minute, ends):
    trial = ended(running(1, measured(1, loss=0.5)), JobState.SUCCEEDED, whole=False)
    plan = decide(tuning(trial, max_trials=1, cancel_requested=True), at(minute))
    assert (plan.state is JobState.CANCELLED) is ends
    assert [each.final for each in plan.trials.values()] == [measured(1, loss=0.5)] * ends


def test_a_trial_whose_job_was_deleted_waits_for_nothing_and_teaches_nothing():
    trial = ended(running(1), JobState.SUCCEEDED, whole=False, deleted=True)
    plan = decide(tuning(trial, running(2)), at(10))
    assert (plan.trials[1].state, plan.trials[1].reason) == (TrialState.INFEASIBLE, DELETED)
    assert (plan.outcome, plan.requested) == (None, (3,)), "it is no first trial that failed"


def test_a_trial_that_waits_long_for_its_metrics_is_named():
    trial = ended(running(1, measured(1, loss=0.5)), JobState.SUCCEEDED, whole=False)
    assert decide(tuning(trial, running(2)), at(9.9)).awaited == ()
    assert decide(tuning(trial, running(2)), at(10)).awaited == (1,)
    assert decide(tuning(replace(trial, whole=True), running(2)), at(10)).awaited == ()


def test_a_trial_without_the_metric_is_infeasible_and_says_what_was_seen():
    change = change_of(ended(running(1), JobState.SUCCEEDED, seen=("loses", "acc")))
    assert change.state is TrialState.INFEASIBLE
    assert change.reason == "Its program reported no measurement of loss; seen: acc, loses."


def test_a_failed_trial_is_infeasible_with_the_error_of_its_job():
    change = change_of(ended(running(1, measured(1, loss=0.5)), JobState.FAILED, error="exit 7"))
    assert (change.state, change.reason, change.final) == (TrialState.INFEASIBLE, "exit 7", None)


def test_a_cancelled_trial_is_infeasible_whatever_it_measured():
    change = change_of(ended(running(1, measured(1, loss=0.5)), JobState.CANCELLED, cancelled_by="ann"))
    assert (change.state, change.reason) == (TrialState.INFEASIBLE, "Cancelled by ann.")


@pytest.mark.parametrize("how", [{"ending": Ending.TIMEOUT}, {"stopped_early": "median rule"}])
def test_a_timeout_or_an_early_stop_keeps_what_was_measured(how):
    change = change_of(ended(running(1, measured(1, loss=0.5)), JobState.CANCELLED, **how))
    assert (change.state, change.final) == (TrialState.SUCCEEDED, measured(1, loss=0.5))


def test_a_trial_that_is_stopped_early_is_stopping_and_its_job_is_cancelled():
    stopped = replace(running(1), stopped_early="median rule")
    plan = decide(tuning(stopped, running(2)), at(10))
    assert (plan.trials[1].state, plan.cancel) == (TrialState.STOPPING, {1: "median rule"})
    stopping = replace(stopped, state=TrialState.STOPPING, job=JobState.CANCELLING)
    assert decide(tuning(stopping, running(2)), at(10)).cancel == {}


def test_the_number_of_failed_trials_ends_the_study_and_cancels_the_others():
    plan = decide(tuning(succeeded(1), failed(2), failed(3), running(4), max_failed=2, parallel=3), NOW)
    assert plan.outcome is not None
    assert (plan.outcome.state, plan.outcome.code) == (JobState.FAILED, 3)
    assert plan.outcome.message == "2 of 3 trials failed. The first was trial 2: exit 1"
    assert (plan.state, set(plan.cancel), plan.requested) == (JobState.RUNNING, {4}, ())


@pytest.mark.parametrize("first", [failed, silent])
def test_without_a_number_the_first_trial_that_ends_decides_alone(first):
    assert decide(tuning(first(1), running(2)), NOW).outcome.state is JobState.FAILED


@pytest.mark.parametrize("first", [failed, silent])
def test_the_first_trial_decides_nothing_once_another_has_succeeded(first):
    """The metrics of trial 1 came hours late, and were none."""
    others = [replace(succeeded(number), job_ended_at=at(60 + number)) for number in range(2, 6)]
    assert decide(tuning(first(1), *others), at(90)).outcome is None
    assert decide(tuning(first(1), running(6)), at(90)).outcome is not None


def test_the_first_trial_decides_nothing_while_one_that_came_to_its_end_waits_for_its_metrics():
    waits = ended(running(2), JobState.SUCCEEDED, whole=False)
    assert decide(tuning(failed(1), waits), NOW).outcome is None
    assert decide(tuning(failed(1), ended(running(2), JobState.FAILED)), NOW).outcome is not None


def test_one_silent_trial_later_is_no_failure():
    assert decide(tuning(succeeded(1), silent(2)), NOW).outcome is None


@pytest.mark.parametrize(
    ("trials", "fails"),
    [
        ((succeeded(1), failed(2), failed(3)), False),
        ((succeeded(1), failed(2), failed(3), failed(4)), True),
        ((succeeded(1), succeeded(2), succeeded(3), failed(4), failed(5), failed(6)), False),
    ],
)
def test_without_a_number_more_than_half_and_three_fail_the_study(trials, fails):
    outcome = decide(tuning(*trials), NOW).outcome
    assert (outcome is not None and outcome.state is JobState.FAILED) is fails


def test_more_than_as_many_as_run_at_once_must_fail():
    trials = (succeeded(1), *map(failed, range(2, 6)))
    assert decide(tuning(*trials, parallel=5), NOW).outcome is None


def test_trials_that_a_person_cancelled_are_no_failures():
    assert decide(tuning(cancelled(1), cancelled(2), cancelled(3), max_failed=1), NOW).outcome is None


def test_a_study_that_has_nothing_to_show_fails():
    plan = decide(tuning(cancelled(1), cancelled(2), max_trials=2), NOW)
    assert plan.state is JobState.FAILED
    assert plan.outcome is not None
    assert plan.outcome.message.startswith("2 of 2 trials failed. The first was trial 1:")


def test_a_cancelled_study_waits_until_all_its_jobs_are_over():
    plan = decide(tuning(succeeded(1), running(2), waiting(3), cancel_requested=True), NOW)
    assert (plan.state, set(plan.cancel), plan.requested) == (JobState.CANCELLING, {2, 3}, ())
    over = tuning(
        succeeded(1),
        ended(running(2), JobState.CANCELLED),
        state=JobState.CANCELLING,
        cancel_requested=True,
        outcome=plan.outcome,
    )
    plan = decide(over, NOW)
    assert (plan.state, plan.outcome.code) == (JobState.CANCELLED, 1)


def test_a_job_that_is_cancelled_already_is_not_cancelled_again():
    stopping = replace(running(1), job=JobState.CANCELLING)
    assert decide(tuning(stopping, cancel_requested=True), NOW).cancel == {}


def test_an_end_that_was_decided_stays():
    outcome = Outcome(JobState.FAILED, 3, "2 of 3")
    plan = decide(tuning(succeeded(1), succeeded(2), running(3), outcome=outcome), NOW)
    assert (plan.outcome, plan.requested, set(plan.cancel)) == (outcome, (), {3})


def stopping(**rules):
    return {"study": replace(STUDY, stopping=StudyStopping(**rules))}


def test_a_study_with_enough_trials_waits_for_those_that_run():
    plan = decide(tuning(succeeded(1), running(2), waiting(3), **stopping(max_trials=1)), NOW)
    assert plan.outcome == Outcome(JobState.SUCCEEDED)
    assert (plan.requested, set(plan.cancel), plan.state) == ((), {3}, JobState.RUNNING)


def test_a_study_that_stops_at_once_cancels_those_that_run():
    plan = decide(tuning(succeeded(1), running(2), **stopping(max_trials=1, stop_asap=True)), NOW)
    assert set(plan.cancel) == {2}


def test_a_trial_that_was_never_drawn_says_so():
    over = ended(waiting(2), JobState.CANCELLED)
    assert change_of(over).reason == "The study ended before its parameters were drawn."


def test_time_alone_ends_a_study_and_is_looked_at_again():
    rules = stopping(maximum_runtime=Limit(seconds=600.0))
    plan = decide(tuning(succeeded(1), running(2), **rules), at(9))
    assert (plan.outcome, plan.look_again_s) == (None, 60.0)
    assert decide(tuning(succeeded(1), running(2), **rules), at(10)).outcome == Outcome(JobState.SUCCEEDED)


def test_the_time_in_the_queue_is_no_runtime():
    """A study that waits for hosts is not over before its first trial; it has its whole runtime when that starts."""
    most = stopping(maximum_runtime=Limit(seconds=600.0))
    for first in (waiting(1), replace(waiting(1), job=JobState.PENDING)):
        plan = decide(tuning(first, started_at=None, **most), at(600))
        assert (plan.outcome, plan.cancel, plan.look_again_s) == (None, {}, None)
    begun = replace(running(1), started_at=at(600), job_started_at=at(600))
    assert decide(tuning(begun, started_at=None, **most), at(601)).started_at == at(600)
    assert decide(tuning(begun, started_at=at(600), **most), at(609)).look_again_s == 60.0
    assert decide(tuning(begun, started_at=at(600), **most), at(610)).outcome is not None
    least = stopping(max_trials=1, minimum_runtime=Limit(seconds=600.0))
    assert decide(tuning(succeeded(1), started_at=None, **least), at(600)).outcome is None


def test_a_moment_ends_a_study_that_waits_too():
    rules = stopping(maximum_runtime=Limit(moment=at(5)))
    plan = decide(tuning(waiting(1), started_at=None, **rules), at(5))
    assert plan.outcome is not None and set(plan.cancel) == {1}


def test_a_moment_ends_a_study():
    rules = stopping(maximum_runtime=Limit(moment=at(5)))
    assert decide(tuning(succeeded(1), **rules), at(4)).outcome is None
    assert decide(tuning(succeeded(1), **rules), at(5)).outcome == Outcome(JobState.SUCCEEDED)


@pytest.mark.parametrize(
    "veto",
    [
        {"min_trials": 3},
        {"minimum_runtime": Limit(seconds=3600.0)},
        {"minimum_runtime": Limit(moment=at(60))},
    ],
)
def test_the_minima_veto(veto):
    trials = (succeeded(1), succeeded(2))
    assert decide(tuning(*trials, **stopping(max_trials=1, **veto)), at(10)).outcome is None
    assert decide(tuning(*trials, **stopping(max_trials=1)), at(10)).outcome is not None


@pytest.mark.parametrize(
    ("losses", "enough"), [((0.3, 0.4, 0.5), True), ((0.3, 0.4, 0.2), False), ((0.3, 0.3, 0.3), True)]
)
def test_a_study_without_progress_ends(losses, enough):
    trials = [succeeded(number, loss) for number, loss in enumerate(losses, start=1)]
    plan = decide(tuning(*trials, **stopping(max_trials_no_progress=2)), NOW)
    assert (plan.outcome is not None) is enough


def test_a_study_without_progress_for_some_time_ends():
    trials = (succeeded(1, 0.2, minute=1), succeeded(2, 0.3, minute=5))
    rules = stopping(max_seconds_no_progress=600.0)
    assert decide(tuning(*trials, **rules), at(10)).outcome is None
    assert decide(tuning(*trials, **rules), at(10)).look_again_s == 60.0
    assert decide(tuning(*trials, **rules), at(11)).outcome == Outcome(JobState.SUCCEEDED)


TRIALS = st.sampled_from([waiting, running, succeeded, failed, silent, cancelled])


@given(
    st.lists(TRIALS, max_size=12),
    st.integers(1, 12),
    st.integers(1, 5),
    st.integers(0, 5),
    st.booleans(),
    st.none() | st.integers(1, 12),
)
def test_whatever_has_happened_the_bounds_hold(kinds, most, parallel, max_failed, cancel, points):
    trials = tuple(kind(number) for number, kind in enumerate(kinds, start=1))
    view = tuning(
        *trials,
        max_trials=most,
        parallel=parallel,
        max_failed=max_failed,
        cancel_requested=cancel,
        points=points,
        state=JobState.RUNNING,
    )
    plan = decide(view, at(30))
    live = [each for each in trials if each.state not in FINISHED]
    assert not plan.requested or len(live) + len(plan.requested) <= parallel
    assert not plan.requested or len(trials) + len(plan.requested) <= min(most, points or most)
    assert not (plan.requested and plan.outcome)
    assert (plan.state in TERMINAL) == (plan.outcome is not None and not live)
    assert set(plan.cancel) <= {each.number for each in live}
    # Something is asked for, something still runs, or it is over: it never stands still.
    assert plan.requested or live or plan.state in TERMINAL
