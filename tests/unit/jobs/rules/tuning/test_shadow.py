"""What each rule would have done with a trial, whether it is on or not."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.rules.tuning.stopping import shadow as shadows
from jobs.rules.tuning.stopping.early_stopping import stops
from jobs.rules.tuning.stopping.savings import Result, Shadow, shadow, shadow_text
from jobs.rules.tuning.stopping.shadow import Ended, verdicts, would_stop
from jobs.rules.tuning.study import EarlyStopping, Goal, Metric, Rule
from jobs.rules.tuning.trials import Measurement, Trial
from tests.unit.jobs.rules.tuning.test_early_stopping import (
    ACCURACY,
    CONVEX,
    DECAY,
    MEDIAN,
    VALUES,
    done,
    rising,
)
from tests.unit.jobs.rules.tuning.views import STUDY

OF_ACCURACY = replace(STUDY, metrics=(ACCURACY,))


def ended(each, began=0.0):
    """A trial that reported each ten seconds, and ended with its last report."""
    seconds = 10.0 * len(each.measurements)
    return Ended(replace(each, seconds=seconds), began, began + seconds)


# One after the other, so that each knows those before it.
BEFORE = [ended(done(number, rising(0.80 + number / 100)), 200.0 * number) for number in range(7)]
POOR = ended(done(50, rising(0.2)), 2000.0)
BEST = ended(done(51, rising(0.99)), 2000.0)


@pytest.mark.parametrize("early", [MEDIAN, CONVEX, DECAY])
def test_a_poor_trial_would_have_been_stopped_and_the_best_one_not(early):
    seconds = would_stop(POOR, BEFORE, ACCURACY, early)
    assert seconds is not None and 50.0 <= seconds < 200.0
    assert would_stop(BEST, BEFORE, ACCURACY, early) is None


def test_a_verdict_is_that_of_the_moment():
    """Trials that ended later were not known then."""
    at_once = [replace(each, began_s=0.0, ended_s=each.ended_s + 9999.0) for each in BEFORE]
    assert would_stop(POOR, at_once, ACCURACY, MEDIAN) is None


def test_a_rule_that_is_off_is_asked_as_it_is_by_default_and_one_that_is_on_as_the_study_says():
    assert set(verdicts(OF_ACCURACY, POOR, BEFORE)) == set(map(str, Rule))
    late = EarlyStopping(Rule.CONVEX, min_steps=19)
    assert set(verdicts(replace(OF_ACCURACY, early=late), POOR, BEFORE)) == {
        str(rule) for rule in Rule if rule is not Rule.CONVEX
    }


def test_trials_without_a_result_and_studies_of_several_metrics_have_no_verdict():
    assert verdicts(OF_ACCURACY, replace(POOR, trial=replace(POOR.trial, final=None)), BEFORE) == {}
    both = replace(STUDY, metrics=(ACCURACY, Metric("loss", Goal.MINIMIZE)))
    assert verdicts(both, POOR, BEFORE) == {}


@given(st.lists(VALUES, min_size=1, max_size=12), st.booleans(), st.sampled_from((MEDIAN, CONVEX)))
def test_a_verdict_is_what_the_rule_says_of_what_was_measured_by_then(values, elapsed, early):
    early = replace(early, use_elapsed=elapsed)
    own = ended(done(50, values), 5000.0)
    others = [each.trial for each in BEFORE]
    asked = [
        10.0 * count
        for count in range(1, len(values) + 1)
        if math.isfinite(values[count - 1])
        and stops(replace(own.trial, measurements=own.trial.measurements[:count]), others, ACCURACY, early)
    ]
    assert would_stop(own, BEFORE, ACCURACY, early) == (asked[0] if asked else None)


def test_where_there_are_many_trials_the_best_is_among_those_that_are_compared(monkeypatch):
    monkeypatch.setattr(shadows, "MOST_COMPLETED", 6)
    many = [ended(done(number, rising(0.1)), 0.0) for number in range(30)]
    many[17] = ended(done(17, rising(0.9)), 0.0)
    assert would_stop(ended(done(50, rising(0.5)), 900.0), many, ACCURACY, CONVEX) is not None
    many[17] = ended(done(17, rising(0.1)), 0.0)
    assert would_stop(ended(done(50, rising(0.5)), 900.0), many, ACCURACY, CONVEX) is None


def test_measurements_that_are_no_numbers_are_no_moments():
    odd = [Measurement(step, {"accuracy": math.nan}, 10.0 * step) for step in range(1, 9)]
    assert (
        would_stop(
            ended(Trial(50, POOR.trial.state, {}, tuple(odd), odd[-1]), 2000.0), BEFORE, ACCURACY, MEDIAN
        )
        is None
    )


def test_a_shadow_says_what_a_rule_would_have_saved():
    results = [Result(number, 100.0, number / 10) for number in range(4)]
    found = shadow(results, ACCURACY, {0: 20.0, 1: 60.0, 9: 1.0})
    assert found == Shadow(2, 0.3, True)
    assert shadow(results, ACCURACY, {3: 50.0}) == Shadow(1, 0.125, False)
    assert shadow(results, ACCURACY, {3: 150.0}) == Shadow(1, 0.0, False)
    assert shadow(results, ACCURACY, {9: 50.0}) == Shadow(0, 0.0, True)
    assert shadow([Result(1, 0.0, math.nan)], ACCURACY, {1: 0.0}) == Shadow(1, 0.0, False)
    assert shadow([], ACCURACY, {}) == Shadow(0, 0.0, True)


def test_a_shadow_in_words():
    assert shadow_text(Rule.CONVEX, Shadow(2, 0.234, True)) == (
        "convex would have saved 23 % of the time and kept the best trial"
    )
    assert shadow_text(Rule.CONVEX, Shadow(2, 0.234, True), uses_gpus=True) == (
        "convex would have saved 23 % of the GPU-hours and kept the best trial"
    )
    assert shadow_text(Rule.MEDIAN, Shadow(2, 0.5, False)).endswith("of the time and stopped the best trial")
    assert shadow_text(Rule.MEDIAN, Shadow(2, 0.5, False), True).endswith(
        "GPU-hours and stopped the best trial"
    )
    assert shadow_text(Rule.DECAY_CURVE, Shadow(0, 0.0, True)) == "decay curve would have stopped no trial"


def test_a_tie_for_the_best_is_kept_by_either():
    results = [Result(1, 10.0, 0.5), Result(2, 10.0, 0.5)]
    assert shadow(results, ACCURACY, {1: 5.0}).keeps_best
    assert not shadow(results, ACCURACY, {1: 5.0, 2: 5.0}).keeps_best


def test_a_rule_that_waits_for_more_measurements_than_there_are_is_not_asked():
    """The number that a study may wait for has no bound worth the name: nothing is as large as it."""
    tracemalloc.start()
    try:
        late = replace(CONVEX, min_measurements=2_000_000)
        assert would_stop(POOR, BEFORE, ACCURACY, late) is None
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert list(shadows._looks(20, replace(CONVEX, min_measurements=20))) == [19]
    assert not shadows._looks(20, replace(CONVEX, min_measurements=21))
