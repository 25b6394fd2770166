"""Which measurement of a trial counts, and which trial is best."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.rules.tuning import measurements
from jobs.rules.tuning.measurements import best_trial, best_trials, final_measurement, thinned
from jobs.rules.tuning.study import Goal, Metric, Selection
from tests.unit.jobs.rules.tuning.views import STUDY, measured
from tests.unit.jobs.rules.views import examples

CURVE = (measured(3, loss=0.4), measured(1, loss=0.9), measured(2, loss=0.2))
BEST = replace(STUDY, selection=Selection.BEST)
TWO = replace(STUDY, metrics=(Metric("loss", Goal.MINIMIZE), Metric("accuracy", Goal.MAXIMIZE)))


def test_the_last_measurement_is_that_of_the_highest_step():
    assert final_measurement(STUDY, CURVE) == measured(3, loss=0.4)


def test_the_best_measurement_is_that_of_the_goal():
    assert final_measurement(BEST, CURVE) == measured(2, loss=0.2)
    upwards = replace(BEST, metrics=(Metric("loss", Goal.MAXIMIZE),))
    assert final_measurement(upwards, CURVE) == measured(1, loss=0.9)


def test_no_number_is_never_the_best():
    assert final_measurement(BEST, (measured(1, loss=math.nan), *CURVE)) == measured(2, loss=0.2)


def test_of_equal_measurements_the_earlier_is_best():
    assert final_measurement(BEST, (measured(2, loss=0.1), measured(1, loss=0.1))) == measured(1, loss=0.1)


def test_all_metrics_of_the_best_come_from_the_same_measurement():
    curve = (measured(1, loss=0.1, accuracy=0.5), measured(2, loss=0.2, accuracy=0.9))
    assert final_measurement(replace(TWO, selection=Selection.BEST), curve) == curve[0]


@pytest.mark.parametrize("curve", [(), (measured(1, accuracy=0.5),)])
def test_without_every_objective_there_is_no_final_measurement(curve):
    assert final_measurement(TWO, curve) is None


def test_the_best_trial_is_the_first_of_the_best():
    finals = {3: {"loss": 0.1}, 1: {"loss": 0.2}, 2: {"loss": 0.1}, 4: {"loss": math.nan}}
    assert best_trial(STUDY, finals) == 2
    assert best_trial(STUDY, {1: {"loss": math.nan}}) is None


def test_of_several_objectives_those_that_no_trial_beats_are_best():
    finals = {
        1: {"loss": 0.1, "accuracy": 0.5},
        2: {"loss": 0.2, "accuracy": 0.9},
        3: {"loss": 0.2, "accuracy": 0.4},
        4: {"loss": math.nan, "accuracy": 1.0},
    }
    assert best_trials(TWO, finals) == [1, 2]
    assert best_trials(STUDY, {1: {"loss": 1.0}, 2: {"loss": 1.0}, 3: {"loss": 2.0}}) == [1, 2]


@examples(200)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30))
def test_the_front_is_what_no_trial_beats(values):
    finals = {
        number: {"loss": float(loss), "accuracy": float(accuracy)}
        for number, (loss, accuracy) in enumerate(values, 1)
    }
    unbeaten = [
        number
        for number, (loss, accuracy) in enumerate(values, 1)
        if not any(
            one <= loss and other >= accuracy and (one, other) != (loss, accuracy) for one, other in values
        )
    ]
    assert best_trials(TWO, finals) == unbeaten


def test_the_front_of_two_objectives_takes_one_comparison_for_each_trial(monkeypatch):
    """Ten thousand trials, none of which beats another: with each other they would be compared fifty million times."""
    compared = []
    beats = measurements._beats
    monkeypatch.setattr(measurements, "_beats", lambda *both: compared.append(both) or beats(*both))
    finals = {number: {"loss": float(number), "accuracy": float(number)} for number in range(1, 10_001)}
    assert len(best_trials(TWO, finals)) == 10_000
    assert len(compared) < 10_000


def test_a_thinned_curve_keeps_its_ends_its_extremes_and_the_final_measurement():
    curve = [measured(step, loss=5.0) for step in range(5000)]
    curve[777], curve[778] = measured(777, loss=-1.0), measured(778, loss=99.0)
    curve[4321] = measured(4321, loss=4.9)
    found = thinned(curve, "loss", curve[4321], 100)
    assert {0, 777, 778, 4321, 4999} <= {each.step for each in found} and len(found) < 110
    assert thinned(curve[:50], "other", None, 100) == curve[:50]
