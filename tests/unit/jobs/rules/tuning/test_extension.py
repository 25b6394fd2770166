"""A study that gets more trials: which counts are possible, and what would end again at once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.rules.lifecycle.states import TERMINAL, JobState
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.tuning.decide import decide
from jobs.rules.tuning.extension import Counts, extended, parse_extension, refusal
from jobs.rules.tuning.study import StudyStopping
from jobs.rules.tuning.views import Outcome
from tests.unit.jobs.rules.tuning.views import STUDY, at, cancelled, failed, running, succeeded, tuning

NOW = Counts(4, 2, 0)


def refused(**document):
    with pytest.raises(InvalidDocument) as found:
        parse_extension(document, NOW)
    return [each.field for each in found.value.violations]


def test_what_is_left_out_stays():
    assert parse_extension({"maxTrialCount": "9"}, NOW) == Counts(9, 2, 0)
    assert parse_extension({"parallelTrialCount": 1}, NOW) == Counts(4, 1, 0)
    assert parse_extension({"max_trial_count": 5, "maxFailedTrialCount": 5}, NOW) == Counts(5, 2, 5)


def test_counts_that_are_no_extension_are_refused():
    assert refused() == refused(maxTrialCount=4) == ["max_trial_count"]
    assert refused(maxTrialCount=3) == ["max_trial_count"]
    assert refused(maxTrialCount=10_001) == ["max_trial_count"]
    assert refused(parallelTrialCount=0) == ["parallel_trial_count"]
    assert refused(maxFailedTrialCount=5) == ["max_failed_trial_count"]
    assert refused(maxTrialCount=9, trials=3) == ["trials"]


def over(*trials, state=JobState.SUCCEEDED, **others):
    view = tuning(*trials, max_trials=len(trials), **others)
    return replace(view, state=state, outcome=Outcome(state))


def test_a_study_that_succeeded_goes_on():
    view = over(succeeded(1), succeeded(2))
    assert refusal(view, Counts(3, 2, 0), at(9)) == ""
    plan = decide(extended(view, Counts(3, 2, 0)), at(9))
    assert (plan.state, plan.requested, plan.outcome) == (JobState.RUNNING, (3,), None)


def test_a_cancelled_study_goes_on():
    view = replace(over(succeeded(1), cancelled(2), state=JobState.CANCELLED), cancel_requested=True)
    assert refusal(view, Counts(4, 2, 0), at(9)) == ""
    assert decide(extended(view, Counts(4, 2, 0)), at(9)).requested == (3, 4)


def test_what_would_end_again_at_once_is_refused_with_the_reason():
    assert "has had 2 trials" in refusal(over(succeeded(1), succeeded(2)), Counts(2, 1, 0), at(9))
    assert "every point" in refusal(over(succeeded(1), points=1), Counts(9, 2, 0), at(9))
    enough = replace(STUDY, stopping=StudyStopping(max_trials=1))
    assert "studyStoppingConfig" in refusal(over(succeeded(1), study=enough), Counts(9, 2, 0), at(9))
    typo = over(failed(1), state=JobState.FAILED)
    assert "1 of 1 trials failed" in refusal(typo, Counts(9, 2, 0), at(9))


def test_a_study_that_failed_goes_on_where_more_trials_may_fail():
    view = over(succeeded(1), failed(2), state=JobState.FAILED, max_failed=1)
    assert "1 of 2 trials failed" in refusal(view, Counts(9, 2, 1), at(9))
    assert refusal(view, Counts(9, 2, 3), at(9)) == ""


def test_a_study_that_is_about_to_end_is_extended_later():
    ending = tuning(running(1), outcome=Outcome(JobState.SUCCEEDED))
    assert "about to end" in refusal(ending, Counts(11, 2, 0), at(9))
    assert "about to end" in refusal(tuning(running(1), cancel_requested=True), Counts(11, 2, 0), at(9))
    assert refusal(tuning(running(1)), Counts(11, 2, 0), at(9)) == ""


@given(
    st.lists(st.sampled_from((succeeded, failed, cancelled)), max_size=5),
    st.sampled_from(sorted(TERMINAL)),
    st.integers(1, 8),
    st.integers(1, 4),
    st.integers(0, 5),
)
def test_what_is_not_refused_asks_for_a_trial(kinds, state, trials, parallel, most_failed):
    view = over(*(kind(number) for number, kind in enumerate(kinds, start=1)), state=state)
    asked = Counts(trials, parallel, most_failed)
    if not refusal(view, asked, at(9)):
        assert decide(extended(view, asked), at(9)).requested
