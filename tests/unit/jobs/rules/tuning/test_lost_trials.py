"""Trials that hosts failed under: no failures, tried again elsewhere, and a study on broken hosts waits."""

from __future__ import annotations

from dataclasses import replace
from gettext import NullTranslations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.infra.texts import in_language
from jobs.rules.lifecycle.states import TERMINAL, JobState
from jobs.rules.tuning.decide import decide
from jobs.rules.tuning.lost_trials import FIRST_PAUSE, LONGEST_PAUSE, pause_text
from jobs.rules.tuning.study import StudyStopping
from jobs.rules.tuning.trials import FINISHED, Ending, TrialState
from jobs.rules.tuning.views import Outcome, TrialView
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
)

WHY = "workerpool0-0 could not be started on gpu07 (disk_full)."
UNIT_S = 5.0


def lost(number: int, x: float | None = None, ending: Ending = Ending.HOSTS) -> TrialView:
    """It is over, and was to try this point; its own one unless the test says another."""
    return replace(
        failed(number, WHY),
        parameters={"x": float(number) if x is None else x},
        ending=ending,
        reason=WHY,
    )


def given_up(number: int, x: float | None = None) -> TrialView:
    return lost(number, x, Ending.GIVEN_UP)


def losing(number: int, x: float, **others) -> TrialView:
    """Its job has just failed by a fault of hosts."""
    return replace(
        running(number, measured(1, loss=0.5)),
        parameters={"x": x},
        job=JobState.FAILED,
        error=WHY,
        ending=Ending.HOSTS,
        job_ended_at=at(number),
        **others,
    )


def study(*trials, **others):
    return tuning(*trials, **{"retry_wait_s": UNIT_S, **others})


def test_a_first_trial_that_hosts_failed_under_ends_no_study_and_is_tried_again():
    plan = decide(study(losing(1, 0.3), running(2)), at(1))
    change = plan.trials[1]
    assert (change.state, change.ending, change.final) == (TrialState.INFEASIBLE, Ending.HOSTS, None)
    assert change.reason == (
        f"Hosts failed, not its program. {WHY} Another trial takes its place, with the same parameters."
    )
    assert (plan.outcome, plan.requested, plan.pause) == (None, (3,), None)


def test_the_third_try_of_a_point_is_the_last():
    before = (lost(1, 0.3), succeeded(2), lost(3, 0.3), succeeded(4))
    change = decide(study(*before, losing(5, 0.3)), at(5)).trials[5]
    assert change.ending is Ending.GIVEN_UP
    assert change.reason == f"Hosts failed, not its program. {WHY} It was the last of 3 such tries."
    assert decide(study(*before, losing(5, 0.4)), at(5)).trials[5].ending is Ending.HOSTS


def test_two_of_one_point_that_are_seen_at_once_are_two_tries():
    plan = decide(study(lost(1, 0.3), losing(2, 0.3), losing(3, 0.3), parallel=3), at(5))
    assert [plan.trials[each].ending for each in (2, 3)] == [Ending.HOSTS, Ending.GIVEN_UP]


def test_a_trial_without_parameters_that_found_no_place_says_why():
    waits = replace(losing(2, 0.0), drawn=False, parameters={}, measured=())
    change = decide(study(succeeded(1), waits), at(5)).trials[2]
    assert change.reason == f"Hosts failed, not its program. {WHY} Another trial takes its place."


def test_lost_trials_are_in_no_count_and_those_given_up_are_in_the_count_of_trials():
    trials = (succeeded(1), lost(2, 0.3), succeeded(3), lost(4, 0.3))
    assert decide(study(*trials, max_trials=3), NOW).requested == (5,)
    plan = decide(study(*trials, given_up(5, 0.3), max_trials=3), NOW)
    assert (plan.requested, plan.state) == ((), JobState.SUCCEEDED)
    assert decide(study(*trials, points=2), NOW).outcome is not None
    assert decide(study(*trials, points=3), NOW).requested == (5,)
    assert decide(study(*trials, given_up(5, 0.3), points=3), NOW).requested == ()


@pytest.mark.parametrize("first", [lost, given_up])
def test_no_rule_of_failed_trials_counts_a_fault_of_hosts(first):
    assert decide(study(first(1), running(2)), NOW).outcome is None
    assert decide(study(first(1), first(2), running(3), max_failed=1), NOW).outcome is None
    many = [succeeded(1), *(first(number) for number in range(2, 9))]
    assert decide(study(*many, running(9)), NOW).outcome is None
    # The first that its program ended decides alone, although hosts failed before it.
    assert decide(study(first(1), failed(2), running(3)), NOW).outcome is not None


def test_the_end_of_a_study_counts_no_trial_that_was_tried_again():
    rules = {"study": replace(STUDY, stopping=StudyStopping(max_trials=2))}
    assert decide(study(succeeded(1), lost(2), running(3), **rules), NOW).outcome is None
    assert decide(study(succeeded(1), lost(2), succeeded(3), running(4), **rules), NOW).outcome is not None


def test_a_study_that_had_hosts_for_no_trial_fails_and_says_so():
    trials = (lost(1, 0.3), lost(2, 0.3), given_up(3, 0.3))
    plan = decide(study(*trials, max_trials=1), at(90))
    assert plan.outcome is not None
    assert (plan.state, plan.outcome.code) == (JobState.FAILED, 14)
    assert plan.outcome.message == f"1 of 1 trials failed. The first was trial 3: {WHY}"
    undrawn = [replace(each, drawn=False, parameters={}) for each in trials]
    assert decide(study(*undrawn, max_trials=1), at(90)).state is JobState.FAILED
    mixed = decide(study(*trials, silent(4), max_trials=2), at(90))
    assert (mixed.state, mixed.outcome.code) == (JobState.FAILED, 3)


def test_after_three_in_a_row_it_waits_and_says_why():
    last = at(3)
    view = study(lost(1), lost(2), lost(3), parallel=3)
    plan = decide(view, last)
    assert (plan.requested, plan.outcome, plan.state) == ((), None, JobState.RUNNING)
    assert pause_text(plan.pause) == (
        "Hosts failed under the last 3 trials. The next one begins at 2026-11-01 12:04:00 UTC, alone. "
        f"Trial 3: {WHY}"
    )
    assert FIRST_PAUSE * UNIT_S == 60
    assert decide(view, at(3.9)).requested == ()
    plan = decide(view, at(4))
    assert plan.requested == (4,)
    assert "Trial 4 shows whether they work again; before it ends, no other begins." in pause_text(plan.pause)


def test_one_trial_at_a_time_finds_out_whether_hosts_work_again():
    before = (lost(1), lost(2), lost(3))
    plan = decide(study(*before, running(4), parallel=3), at(60))
    assert (plan.requested, plan.pause.trying) == ((), (4,))
    assert decide(study(*before, succeeded(4), parallel=3), at(60)).requested == (5, 6, 7)
    assert decide(study(*before, failed(4), parallel=3, max_failed=2), at(60)).requested == (5, 6, 7)


def test_one_that_runs_since_before_does_not_keep_the_others_waiting():
    before = (lost(2), lost(3), lost(4))
    assert decide(study(running(1), *before, parallel=3), at(60)).requested == (5,)


def test_each_pause_is_twice_as_long_up_to_a_longest():
    for count, minutes in ((3, 1), (4, 2), (5, 4), (8, 32), (9, 60), (30, 60), (500, 60)):
        trials = [lost(number) for number in range(1, count + 1)]
        view = study(succeeded(0), *trials, max_trials=1000)
        assert decide(view, at(count + minutes - 0.1)).requested == ()
        assert decide(view, at(count + minutes)).requested == (count + 1,)
    assert LONGEST_PAUSE * UNIT_S == 3600


def test_a_clock_that_was_set_back_makes_nothing_wait_for_days():
    view = study(lost(1), lost(2), lost(3))
    assert decide(view, at(-60 * 24)).requested == (4,)


def test_what_a_person_cancels_says_nothing_about_hosts():
    assert decide(study(lost(1), cancelled(2), lost(3), cancelled(4), lost(5)), at(5)).requested == ()


def test_a_trial_that_ended_by_itself_shows_that_hosts_work():
    for well in (succeeded(3), failed(3), silent(3)):
        assert decide(study(lost(1), lost(2), well, lost(4), max_failed=3), at(4)).requested == (5, 6)


TRIALS = st.sampled_from([running, succeeded, failed, silent, cancelled, lost, given_up])


@given(
    st.lists(TRIALS, max_size=12),
    st.integers(1, 12),
    st.integers(1, 5),
    st.integers(0, 5),
    st.integers(0, 90),
)
def test_whatever_hosts_do_a_study_never_stands_still(kinds, most, parallel, max_failed, minute):
    trials = tuple(kind(number) for number, kind in enumerate(kinds, start=1))
    view = study(*trials, max_trials=most, parallel=parallel, max_failed=max_failed, state=JobState.RUNNING)
    plan = decide(view, at(minute))
    live = [each for each in trials if each.state not in FINISHED]
    own = [each for each in trials if each.ending is not Ending.HOSTS]
    assert len(own) + len(plan.requested) <= max(most, len(own))
    assert not plan.requested or len(live) + len(plan.requested) <= parallel
    assert plan.requested or plan.pause or live or plan.state in TERMINAL
    assert not (plan.pause and plan.outcome)
    # A pause ends: some day a trial begins.
    assert plan.pause is None or live or decide(view, at(60 * 24)).requested
    # As if there had been none of them.
    shown = decide(
        replace(view, trials=tuple(each for each in trials if not each.ending.by_hosts)), at(minute)
    )
    ends_by_failures = (
        plan.outcome is not None and "trials failed" in plan.outcome.message and (live or plan.cancel)
    )
    assert not ends_by_failures or shown.outcome == plan.outcome


def unplaced(number: int, ending: Ending = Ending.HOSTS) -> TrialView:
    """It is over, and found no place."""
    return replace(lost(number, ending=ending), drawn=False, parameters={}, no_place=True)


def test_a_study_that_no_host_ever_starts_ends_after_ten_in_a_row_and_two_hours():
    trials = tuple(lost(number) for number in range(1, 11))
    trials = tuple(replace(each, job_ended_at=at(12 * each.number)) for each in trials)
    assert decide(study(*trials), at(300)).requested == (11,), "not two hours yet"
    trials = tuple(replace(each, job_ended_at=at(14 * each.number)) for each in trials)
    assert decide(study(*trials[:9]), at(300)).requested == (10,)
    plan = decide(study(*trials), at(300))
    assert (plan.requested, plan.pause, plan.state) == ((), None, JobState.FAILED)
    assert (plan.outcome.code, plan.outcome.message) == (
        14,
        f"Hosts failed under all 10 trials that ended. Trial 10: {WHY}",
    )
    # What runs may end well, and then the study goes on.
    plan = decide(study(*trials, running(11)), at(300))
    assert (plan.requested, plan.outcome) == ((), None)
    well = replace(failed(0), job_ended_at=at(0))
    assert decide(study(well, *trials, max_failed=9), at(300)).requested == (11,)


def test_trials_that_found_no_place_make_no_pause_and_are_one_anothers_tries_never():
    trials = [unplaced(number) for number in range(1, 10)]
    assert decide(study(*trials, parallel=1), at(9)).requested == (10,)
    waits = replace(losing(10, 0.0), drawn=False, parameters={}, measured=(), no_place=True)
    change = decide(study(*trials, waits), at(10)).trials[10]
    assert (change.ending, change.reason) == (
        Ending.HOSTS,
        f"It found no place. {WHY} Another trial takes its place.",
    )
    assert decide(study(lost(1), lost(2), unplaced(3)), at(3)).requested == (4, 5)


def test_ten_in_a_row_that_found_no_place_end_the_study():
    trials = [succeeded(1), *(unplaced(number) for number in range(2, 12))]
    plan = decide(study(*trials, max_trials=40), at(12))
    assert (plan.state, plan.outcome.code) == (JobState.FAILED, 8)
    assert plan.outcome.message == f"Its last 10 trials found no place. Trial 11: {WHY}"
    assert decide(study(*trials, running(12), max_trials=40), at(12)).outcome is None
    assert decide(study(*trials, parallel=11, max_trials=40), at(12)).requested


def test_a_point_that_was_given_up_has_its_tries_anew():
    before, endings = [], []
    for number in range(1, 8):
        change = decide(study(*before, losing(number, 0.3), retry_wait_s=0.0), at(number)).trials[number]
        endings.append(change.ending)
        before.append(lost(number, 0.3, change.ending))
    given = [each is Ending.GIVEN_UP for each in endings]
    assert given == [False, False, True, False, False, True, False]


def test_a_point_that_another_trial_has_is_not_tried_again():
    other = replace(succeeded(1), parameters={"x": 0.3})
    change = decide(study(other, losing(2, 0.3)), at(5)).trials[2]
    assert change.reason == f"Hosts failed, not its program. {WHY} Another trial takes its place."


@pytest.mark.parametrize("ends", ["cancelled", "decided", "stopped"])
def test_where_none_comes_nobody_says_that_another_trial_takes_its_place(ends):
    trial = losing(2, 0.3, stopped_early="By a rule." if ends == "stopped" else "")
    others = {
        "cancelled": {"cancel_requested": True},
        "decided": {"outcome": Outcome(JobState.FAILED, 3, "enough")},
        "stopped": {},
    }[ends]
    plan = decide(study(succeeded(1), trial, **others), at(5))
    assert plan.trials[2].ending is Ending.GIVEN_UP
    assert plan.trials[2].reason == f"Hosts failed, not its program. {WHY}"


def test_the_moment_of_the_next_trial_is_shown_in_the_zone_of_its_reader():
    plan = decide(study(lost(1), lost(2), lost(3)), at(3))
    shown = in_language(pause_text(plan.pause), NullTranslations(), lambda at, _english: f"<{at}>")
    assert "The next one begins at <2026-11-01T12:04:00Z>, alone." in shown
