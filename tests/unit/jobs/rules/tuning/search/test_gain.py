"""What the next trials may bring, by the model."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import PCG64, Generator

from jobs.rules.tuning.search.acquisition import log_expected_improvement
from jobs.rules.tuning.search.gain import CERTAIN, Game, outlooks
from jobs.rules.tuning.search.rows import StudyRows
from jobs.rules.tuning.study import RANDOM, Goal, Metric, Safety
from jobs.rules.tuning.trials import Trial, TrialState
from tests.unit.jobs.rules.tuning.search.test_suggest import X, Y, ended, rows_of, searched, study_of
from tests.unit.jobs.rules.tuning.spaces import spaces
from tests.unit.jobs.rules.views import examples

STUDY = study_of(X, Y)
COUNTS = (1, 5, 10)


def valley(point):
    return (point["x"] - 0.3) ** 2 + (point["y"] - 0.6) ** 2


def tried(count, seed=1):
    return tuple(searched(replace(STUDY, algorithm=RANDOM), valley, count, seed))


def test_more_trials_bring_more():
    first, second, third = outlooks(STUDY, StudyRows(tried(8)), 1, COUNTS)
    assert first.value >= second.value >= third.value and third.value < third.now
    assert all(each.low <= each.value <= each.high for each in (second, third))
    assert (first.trials, third.trials) == (1, 10)


def test_after_a_long_search_less_is_to_be_won():
    early, late = (outlooks(STUDY, StudyRows(tried(count)), 1, (5,))[0] for count in (8, 60))
    assert late.now - late.value < early.now - early.value


def test_a_metric_that_is_maximized_rises():
    accuracy = replace(STUDY, metrics=(Metric("accuracy"),))
    rows = tuple(
        ended(each.number, each.parameters, accuracy=1 - valley(each.parameters)) for each in tried(8)
    )
    [found] = outlooks(accuracy, StudyRows(rows), 1, (10,))
    assert found.now < found.value and found.low <= found.value <= found.high


def test_what_runs_is_no_gain_of_further_trials():
    """A trial that runs at the bottom of the valley takes what there is to be won."""
    rows = tried(12)
    without = outlooks(STUDY, StudyRows(rows), 1, (1,))[0]
    running = Trial(99, TrialState.ACTIVE, {"x": 0.3, "y": 0.6})
    beside = outlooks(STUDY, StudyRows((*rows, running)), 1, (1,))[0]
    assert beside.now < without.now
    assert beside.now - beside.value < without.now - without.value


def test_a_search_that_does_not_learn_gains_less():
    learns, does_not = (
        outlooks(each, StudyRows(tried(10)), 1, (10,))[0]
        for each in (STUDY, replace(STUDY, algorithm=RANDOM))
    )
    assert does_not.now - does_not.value < learns.now - learns.value


def test_the_same_rows_give_the_same_outlook():
    rows = StudyRows(tried(8))
    again = StudyRows(tuple(reversed(tried(8))))
    assert outlooks(STUDY, rows, 1, COUNTS) == outlooks(STUDY, again, 1, COUNTS)


def test_nothing_is_said_where_the_model_says_nothing():
    assert outlooks(STUDY, StudyRows(tried(4)), 1, COUNTS) == []
    both = replace(STUDY, metrics=(Metric("loss", Goal.MINIMIZE), Metric("time", Goal.MINIMIZE)))
    safe = replace(STUDY, metrics=(Metric("loss", Goal.MINIMIZE), Metric("time", safety=Safety(1.0))))
    for study in (both, safe):
        assert outlooks(study, StudyRows(tried(8)), 1, COUNTS) == []


@examples(30)
@given(st.data())
def test_whatever_the_rows_are_nothing_raises(data):
    study = study_of(*data.draw(spaces()))
    for each in outlooks(study, data.draw(rows_of(study)), 1, (3,)):
        assert all(map(math.isfinite, (each.now, each.value, each.low, each.high)))


def test_equal_values_and_numbers_that_are_none():
    for value in (0.5, 1e300):
        rows = tuple(ended(each.number, each.parameters, loss=value) for each in tried(8))
        [found] = outlooks(STUDY, StudyRows(rows), 1, (3,))
        assert found.value == pytest.approx(found.now) or found.value < found.now
    for value in (math.nan, math.inf):
        rows = tuple(ended(each.number, each.parameters, loss=value) for each in tried(8))
        assert outlooks(STUDY, StudyRows(rows), 1, (3,)) == []


def test_a_play_learns_as_if_it_had_the_whole_covariance():
    count, places = 12, (3, 7, 3, 0, 11)
    root = Generator(PCG64(1)).standard_normal((count, count))
    covariance, mean = root @ root.T, np.linspace(-1.0, 1.0, count)
    whole, before = covariance, covariance.copy()
    game = Game(mean, covariance, len(places))
    dice, same = Generator(PCG64(2)), Generator(PCG64(2))
    for place in places:
        found, own = game.result(place, dice), covariance[:, place]
        if own[place] < CERTAIN:
            assert found == pytest.approx(mean[place])
            continue
        step = same.standard_normal() * own[place] ** 0.5
        assert found == pytest.approx(mean[place] + step)
        mean = mean + own * (step / own[place])
        covariance = covariance - np.outer(own, own / own[place])
        best = np.argmax(
            log_expected_improvement(mean, np.sqrt(np.maximum(np.diag(covariance), CERTAIN)), 0.0)
        )
        assert game.most_promising(0.0) == best
    assert (whole == before).all()
