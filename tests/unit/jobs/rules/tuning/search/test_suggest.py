"""Suggestions: pure, legal, never the same point twice, and none only where the space is exhausted."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jobs.rules.tuning.search import bayesian, gain, gaussian_process
from jobs.rules.tuning.search.columns import Columns
from jobs.rules.tuning.search.rows import StudyRows
from jobs.rules.tuning.search.shuffle import shuffled
from jobs.rules.tuning.search.suggest import SEARCHES, suggest, trial_seed
from jobs.rules.tuning.space import Condition, Kind, Parameter, Scale, has_point, key, point_at, size
from jobs.rules.tuning.study import (
    DEFAULT_ALGORITHM,
    GRID,
    NOISY,
    RANDOM,
    Goal,
    Metric,
    Safety,
    StudySpec,
)
from jobs.rules.tuning.trials import Measurement, Trial, TrialState
from tests.unit.jobs.rules.tuning.spaces import listed, small_integers, spaces, values_of
from tests.unit.jobs.rules.views import examples

LOSS = Metric("loss", Goal.MINIMIZE)
X, Y = Parameter("x", Kind.DOUBLE, 0.0, 1.0), Parameter("y", Kind.DOUBLE, 0.0, 1.0)
SMALL = (Parameter("n", Kind.INTEGER, 1, 3), Parameter("c", Kind.CATEGORICAL, values=("a", "b")))


def study_of(*parameters, **options):
    return StudySpec(options.pop("metrics", (LOSS,)), parameters, **options)


def ended(number, point, **metrics):
    return Trial(number, TrialState.SUCCEEDED, point, final=Measurement(1, metrics))


def searched(study, loss, trials, seed=1, parallel=1):
    """A study whose trials end in the order of their numbers, `parallel` at a time."""
    rows = {}
    for number in range(1, trials + 1):
        found = suggest(study, StudyRows(tuple(rows.values())), number, seed)
        if found is None:
            break
        rows[number] = Trial(number, TrialState.ACTIVE, found.parameters)
        over = number - parallel + 1
        if over >= 1:
            rows[over] = ended(over, rows[over].parameters, loss=loss(rows[over].parameters))
    return list(rows.values())


WORST = st.sampled_from([math.nan, math.inf, -math.inf, 1e300, -1e300, 0.0, 0.0])
NUMBERS = st.one_of(st.floats(-10, 10), WORST)


@st.composite
def rows_of(draw, study):
    trials = []
    for number in range(1, draw(st.integers(0, 14)) + 1):
        state = draw(st.sampled_from(TrialState))
        point = suggest(
            replace(study, algorithm=RANDOM), StudyRows(()), draw(st.integers(2, 9)), 1
        ).parameters
        final = None
        if state is TrialState.SUCCEEDED and draw(st.integers(0, 9)):
            names = [metric.name for metric in study.metrics if draw(st.integers(0, 9))]
            final = Measurement(1, {name: draw(NUMBERS) for name in names})
        parameters = {} if state is TrialState.REQUESTED else point
        trials.append(Trial(number, state, parameters, final=final, cancelled=draw(st.booleans())))
    half = draw(st.integers(0, len(trials)))
    earlier = (tuple(trials[:half]),) if draw(st.booleans()) else ()
    return StudyRows(tuple(trials), earlier)


METRICS = st.sampled_from(
    [
        (LOSS,),
        (Metric("accuracy"),),
        (LOSS, Metric("accuracy")),
        (LOSS, Metric("memory", Goal.MINIMIZE, Safety(1.0))),
    ]
)


@examples(150)
@given(st.data(), METRICS, spaces(), st.sampled_from([DEFAULT_ALGORITHM, RANDOM]), st.integers(0, 2**60))
def test_whatever_the_rows_are_the_next_point_is_one_and_the_same(data, metrics, parameters, algorithm, seed):
    study = StudySpec(metrics, parameters, algorithm)
    rows = data.draw(rows_of(study))
    found = suggest(study, rows, 50, seed)
    tried = {key(point) for point in rows.tried}
    if found is None:
        assert size(parameters) is not None and len(tried) >= size(parameters)
    else:
        assert has_point(parameters, found.parameters)
        assert key(found.parameters) not in tried
    # The order of rows is of no matter, and nothing is remembered.
    again = StudyRows(tuple(reversed(rows.trials)), tuple(tuple(reversed(each)) for each in rows.earlier))
    assert suggest(study, again, 50, seed) == found


@pytest.mark.parametrize("algorithm", SEARCHES)
def test_a_finite_space_is_searched_to_its_end_and_no_point_comes_twice(algorithm):
    trials = searched(study_of(*SMALL, algorithm=algorithm), lambda point: point["n"], 20, parallel=3)
    points = [key(trial.parameters) for trial in trials]
    assert len(points) == len(set(points)) == size(SMALL) == 6


def lost(trial, again=True):
    return replace(trial, state=TrialState.INFEASIBLE, cancelled=True, again=again)


@examples(60)
@given(st.data(), spaces(), st.sampled_from([DEFAULT_ALGORITHM, RANDOM]), st.integers(0, 2**60))
def test_what_a_trial_was_to_try_that_hosts_failed_under_comes_next_and_once(
    data, parameters, algorithm, seed
):
    study = StudySpec((LOSS,), parameters, algorithm)
    rows = data.draw(rows_of(study)).trials
    point = suggest(replace(study, algorithm=RANDOM), StudyRows(()), 77, 2).parameters
    given_up = lost(Trial(51, TrialState.ACTIVE, point), again=False)
    trial = replace(lost(given_up), number=50, memory={"generation": 3})
    before = {key(each.parameters) for each in rows if each.parameters}
    found = suggest(study, StudyRows((*rows, trial)), 52, seed)
    if key(point) in before:
        assert found == suggest(study, StudyRows(rows), 52, seed), "another trial has tried it"
    else:
        assert (found.parameters, found.memory) == (point, {"generation": 3})
    for other in (given_up, replace(given_up, state=TrialState.ACTIVE, cancelled=False)):
        again = suggest(study, StudyRows((*rows, trial, other)), 52, seed)
        assert again is None or key(again.parameters) != key(point)


@pytest.mark.parametrize("algorithm", SEARCHES)
def test_a_finite_space_is_searched_to_its_end_although_hosts_fail(algorithm):
    study, trials = study_of(*SMALL, algorithm=algorithm), []
    for number in range(1, 40):
        found = suggest(study, StudyRows(tuple(trials)), number, 1)
        if found is None:
            break
        if number % 2:
            trials.append(lost(Trial(number, TrialState.ACTIVE, found.parameters)))
        else:
            trials.append(ended(number, found.parameters, loss=found.parameters["n"]))
    assert len({key(each.parameters) for each in trials if each.measured}) == size(SMALL) == 6
    assert len(trials) == 12


def test_the_best_point_does_not_come_again_although_the_model_likes_it_most():
    """Where all others are far worse, what promises most is where the best trial was."""
    study = study_of(Parameter("n", Kind.INTEGER, 1, 40))
    for seed in (1, 2, 3):
        trials = searched(study, lambda point: float(point["n"]), 14, seed)
        points = [key(trial.parameters) for trial in trials]
        assert len(points) == len(set(points)) == 14


@examples(60)
@given(spaces(finite=True, most=2), st.sampled_from([DEFAULT_ALGORITHM, RANDOM, GRID]))
def test_every_finite_space_comes_to_its_end(parameters, algorithm):
    total = size(parameters)
    assume(total <= 14)
    trials = searched(study_of(*parameters, algorithm=algorithm), lambda point: len(point), total + 2)
    assert len({key(trial.parameters) for trial in trials}) == len(trials) == total


def test_a_cancelled_trial_teaches_nothing_and_its_point_does_not_come_again():
    study = study_of(*SMALL)
    first = ended(1, {"n": 1, "c": "a"}, loss=1.0)
    rows = [first] + [
        Trial(number, TrialState.INFEASIBLE, point_at(SMALL, number - 1), cancelled=True)
        for number in range(2, 7)
    ]
    rows = StudyRows(tuple(rows))
    assert rows.ended == [first]
    assert suggest(study, rows, 7, 1) is None


def test_noisy_measurements_may_be_repeated():
    study = study_of(*SMALL, noise=NOISY)
    assert len(searched(study, lambda point: point["n"], 20)) == 20


def test_the_grid_is_the_whole_space_whatever_the_rows():
    study = study_of(*SMALL, algorithm=GRID)
    points = [suggest(study, StudyRows(()), number, 5).parameters for number in range(1, 7)]
    assert len({key(point) for point in points}) == 6
    rows = tuple(Trial(number, TrialState.ACTIVE, point) for number, point in enumerate(points, start=1))
    assert suggest(study, StudyRows(rows), 7, 5) is None
    other = [suggest(study, StudyRows(()), number, 6).parameters for number in range(1, 7)]
    assert points != other


def test_a_trial_that_had_no_point_leaves_no_hole_in_the_grid():
    study, rows = study_of(*SMALL, algorithm=GRID), []
    for number in range(1, 10):
        if number in (2, 6, 7):
            rows.append(Trial(number, TrialState.INFEASIBLE, cancelled=True))
        else:
            rows.append(ended(number, suggest(study, StudyRows(tuple(rows)), number, 5).parameters, loss=1.0))
    assert len({key(trial.parameters) for trial in rows if trial.parameters}) == 6
    assert suggest(study, StudyRows(tuple(rows)), 10, 5) is None


def test_a_grid_ends_with_its_last_point_however_noisy_measurements_are():
    study = study_of(*SMALL, algorithm=GRID, noise=NOISY)
    assert study.points == 6 and study_of(*SMALL, noise=NOISY).points is None
    assert len(searched(study, lambda point: point["n"], 15, parallel=2)) == 6


@examples(200)
@given(st.integers(1, 700), st.integers(0, 2**64))
def test_a_shuffle_has_each_number_once(total, seed):
    assert sorted(shuffled(index, total, seed) for index in range(total)) == list(range(total))


def test_a_shuffle_has_no_largest_bound():
    total = 10**400
    assert len({shuffled(index, total, 1) for index in range(50)}) == 50
    assert all(0 <= shuffled(index, total, 1) < total for index in range(50))


def test_two_processes_draw_the_same_at_random_whatever_they_know():
    study = study_of(X, Y, algorithm=RANDOM)
    known = StudyRows((ended(1, {"x": 0.5, "y": 0.5}, loss=1.0),))
    one, other = suggest(study, StudyRows(()), 3, 9), suggest(study, known, 3, 9)
    assert one == other and one != suggest(study, known, 4, 9) and one != suggest(study, known, 3, 10)
    assert trial_seed(1, 23) != trial_seed(12, 3)


def test_defaults_are_the_first_trial():
    optimizer = Parameter(
        "optimizer",
        Kind.CATEGORICAL,
        values=("adam", "sgd"),
        default="sgd",
        conditions=(
            Condition(("sgd",), Parameter("momentum", Kind.DISCRETE, values=(0.0, 0.9), default=0.9)),
        ),
    )
    for algorithm in (DEFAULT_ALGORITHM, RANDOM):
        study = study_of(optimizer, replace(X, default=0.0), Y, algorithm=algorithm)
        first = suggest(study, StudyRows(()), 1, 1).parameters
        assert (first["optimizer"], first["momentum"], first["x"]) == ("sgd", 0.9, 0.0) and 0 < first["y"] < 1
        assert suggest(study, StudyRows(()), 2, 1).parameters["x"] != 0.0


@examples(60)
@given(st.data(), st.integers(0, 2**60))
def test_defaults_are_the_first_trial_of_a_grid_which_still_has_each_point_once(data, seed):
    found = data.draw(st.lists(st.one_of(listed(), small_integers()), min_size=1, max_size=3))
    given_ones = [
        replace(each, name=f"p{place}", default=data.draw(st.none() | values_of(each)))
        for place, each in enumerate(found)
    ]
    study = study_of(*given_ones, algorithm=GRID)
    points = [each.parameters for each in searched(study, lambda point: 0.0, study.points + 3, seed)]
    defaults = {each.name: each.default for each in given_ones if each.default is not None}
    assert defaults.items() <= points[0].items()
    assert len({key(point) for point in points}) == len(points) == study.points


def bowl(point):
    return (point["x"] - 0.3) ** 2 + (point["y"] - 0.7) ** 2


def best(trials, loss):
    return min(loss(trial.parameters) for trial in trials)


def test_the_model_finds_what_chance_does_not():
    for seed in range(3):
        by_model = best(searched(study_of(X, Y), bowl, 20, seed), bowl)
        by_chance = best(searched(study_of(X, Y, algorithm=RANDOM), bowl, 20, seed), bowl)
        assert by_model < 1e-4 < by_chance


def test_maximizing_is_minimizing_of_the_negative():
    less = searched(study_of(X, Y), bowl, 12)
    more = searched(study_of(X, Y, metrics=(Metric("loss"),)), lambda point: -bowl(point), 12)
    assert [trial.parameters for trial in less] == [trial.parameters for trial in more]


def test_a_trial_that_runs_where_the_next_would_be_sends_it_elsewhere():
    """The same number and seed, so the same candidates: what differs is that somebody is there already. That the very
    same point does not come twice is not enough: the one beside it would teach as little."""
    study, apart = study_of(X, Y), []
    for seed in range(1, 9):
        known = tuple(searched(study_of(X, Y, algorithm=RANDOM), bowl, 8, seed))
        alone = suggest(study, StudyRows(known), 9, seed).parameters
        beside = Trial(10, TrialState.ACTIVE, alone)
        found = suggest(study, StudyRows((*known, beside)), 9, seed).parameters
        apart.append(math.dist((alone["x"], alone["y"]), (found["x"], found["y"])))
    assert sum(distance > 0.01 for distance in apart) >= 5, apart


def test_a_failed_trial_repels():
    """The model does not go where trials fail, although nothing was measured there."""

    def loss(point):
        return -point["x"] - point["y"]

    rows = list(searched(study_of(X, Y, algorithm=RANDOM), loss, 16))
    rows = [
        replace(trial, state=TrialState.INFEASIBLE, final=None) if trial.parameters["x"] > 0.5 else trial
        for trial in rows
    ]
    found = [suggest(study_of(X, Y), StudyRows(tuple(rows)), number, 1) for number in range(17, 21)]
    assert sum(each.parameters["x"] < 0.7 for each in found) >= 3


def test_an_unsafe_place_is_avoided():
    """The loss falls with x, and so does the safety: the best safe place is near the threshold."""
    memory = Metric("memory", Goal.MINIMIZE, Safety(0.5))
    study = study_of(X, metrics=(LOSS, memory))
    dice, rows = random.Random(1), []
    for number in range(1, 9):
        x = dice.random()
        rows.append(ended(number, {"x": x}, loss=-x, memory=x))
    found = [suggest(study, StudyRows(tuple(rows)), number, 1).parameters["x"] for number in range(9, 15)]
    assert max(found) < 0.6 and suggest(study_of(X), StudyRows(tuple(rows)), 9, 1).parameters["x"] > 0.8


def test_several_metrics_are_spread_along_the_front():
    """Two bowls: the front is the line between their bottoms."""
    metrics = (LOSS, Metric("cost", Goal.MINIMIZE))
    study, rows = study_of(X, Y, metrics=metrics), []
    for number in range(1, 31):
        point = suggest(study, StudyRows(tuple(rows)), number, 2).parameters
        loss, price = (point["x"] - 0.2) ** 2, (point["x"] - 0.8) ** 2
        rows.append(
            ended(number, point, loss=loss + (point["y"] - 0.5) ** 2, cost=price + (point["y"] - 0.5) ** 2)
        )
    late = [trial.parameters for trial in rows[12:]]
    on_front = [point["x"] for point in late if abs(point["y"] - 0.5) < 0.1 and 0.15 < point["x"] < 0.85]
    assert len(on_front) >= 14 and min(on_front) < 0.4 and max(on_front) > 0.55


def test_an_earlier_study_is_a_prior():
    """Its trials are not finished trials of this one, but the first suggestion knows what they found."""
    earlier = [tuple(searched(study_of(X, Y), bowl, 20, seed)) for seed in range(1, 6)]
    firsts = [suggest(study_of(X, Y), StudyRows((), (trials,)), 1, 1) for trials in earlier]
    assert sorted(bowl(each.parameters) for each in firsts)[2] < 0.05
    assert all(each.expected is None for each in firsts)


def test_what_the_model_expects_is_said_in_units_of_the_metric():
    accuracy = Metric("accuracy")
    study = study_of(X, Y, metrics=(accuracy,))
    rows = [
        replace(trial, final=Measurement(1, {"accuracy": 0.9 - bowl(trial.parameters)}))
        for trial in searched(study_of(X, Y, algorithm=RANDOM), bowl, 20)
    ]
    expected = suggest(study, StudyRows(tuple(rows)), 21, 1).expected
    assert expected.low <= expected.value <= expected.high and expected.value == pytest.approx(0.9, abs=0.02)
    assert 0 <= expected.chance <= 1


def test_a_thousand_trials_are_thinned_and_fifty_run_at_once():
    rate = Parameter("rate", Kind.DOUBLE, 1e-5, 1.0, scale=Scale.LOG)
    study, dice = study_of(rate, Y), random.Random(1)
    rows = []
    for number in range(1, 1051):
        point = {"rate": 10 ** -dice.uniform(0, 5), "y": dice.random()}
        loss = (math.log10(point["rate"]) + 3) ** 2 + point["y"]
        trial = ended(number, point, loss=loss)
        rows.append(trial if number <= 1000 else Trial(number, TrialState.ACTIVE, point))
    point = suggest(study, StudyRows(tuple(rows)), 1051, 1).parameters
    assert 10**-3.5 < point["rate"] < 10**-2.5 and point["y"] < 0.2


def test_trials_that_are_drawn_together_share_a_model(monkeypatch):
    """It takes most of the time of a suggestion. What is kept changes no suggestion."""
    study, rows, learnt = (
        study_of(X, Y),
        {each.number: each for each in searched(study_of(X, Y), bowl, 12)},
        [],
    )
    posterior = gaussian_process._posterior
    monkeypatch.setattr(
        gaussian_process, "_posterior", lambda *given: learnt.append(given) or posterior(*given)
    )

    def drawn_together(forget):
        found = dict(rows)
        for number in range(13, 17):
            if forget:
                gaussian_process._learnt.cache_clear()
            point = suggest(study, StudyRows(tuple(found.values())), number, 1).parameters
            found[number] = Trial(number, TrialState.ACTIVE, point)
        return [found[number].parameters for number in range(13, 17)]

    gaussian_process._learnt.cache_clear()
    kept = drawn_together(forget=False)
    assert len(learnt) == 1
    assert drawn_together(forget=True) == kept and len(learnt) == 5
    assert len({key(point) for point in kept}) == 4


def test_scales_are_learnt_again_when_a_tenth_more_results_have_come(monkeypatch):
    """To learn them is most of the work. Each result counts for the next suggestion all the same."""
    study, learnt, posterior = study_of(X, Y), [], gaussian_process._posterior

    def noted(x, *given):
        learnt.append(len(x))
        return posterior(x, *given)

    monkeypatch.setattr(gaussian_process, "_posterior", noted)
    rows, expected = at_random(50, 1), []
    for count in range(1, 51):
        expected.append(suggest(study, StudyRows(rows[:count]), 60, 1).expected)
    assert learnt == [*range(5, 20), *range(20, 30, 2), 30, 33, 36, 39, 40, 44, 48, 50]
    assert len({each.value for each in expected if each}) == 46


def test_results_that_no_scales_were_learnt_of_are_given_to_the_model(monkeypatch):
    study, seen, given = study_of(X, Y), [], bayesian.given

    def noted(x, values, scales):
        seen.append(len(values))
        return given(x, values, scales)

    monkeypatch.setattr(bayesian, "given", noted)
    rows = at_random(50, 1)
    for count in (37, 38, 39, 45, 49):
        suggest(study, StudyRows(rows[:count]), 60, 1)
    assert sorted(set(seen)) == [37, 38, 39, 45, 49]


def at_random(count, seed):
    dice = random.Random(seed)
    points = [{"x": dice.random(), "y": dice.random()} for _ in range(count)]
    return tuple(ended(number, point, loss=bowl(point)) for number, point in enumerate(points, 1))


def test_large_earlier_studies_displace_no_trial_of_the_study_itself(monkeypatch):
    study, own = study_of(X, Y), at_random(60, 1)
    rows = StudyRows(own, (at_random(1000, 2), at_random(1000, 3)))
    learnt = []

    def noted(x, *given):
        learnt.append({tuple(row) for row in x})
        return gaussian_process.given(x, *given)

    scales = gaussian_process.Scales(np.ones(2), 0.01)
    monkeypatch.setattr(bayesian, "learn_scales", lambda *given: [scales])
    monkeypatch.setattr(bayesian, "given", noted)
    monkeypatch.setattr(gain, "learn", lambda x, values, *options: [noted(x, values, scales)])
    assert suggest(study, rows, 61, 1) is not None and gain.outlooks(study, rows, 1, [1])
    columns = Columns(study.parameters)
    expected = {tuple(row) for row in columns.encode(columns.codes([each.parameters for each in own]))}
    assert [len(each) for each in learnt] == [bayesian.MAX_POINTS] * 2
    assert all(expected <= each for each in learnt)


def test_many_trials_of_the_study_itself_leave_no_room_for_earlier_ones():
    data = bayesian._Data(np.arange(1000.0)[:, None], np.arange(1000.0))
    kept = bayesian.thinned(data, 1, own=600).codes.ravel()
    assert len(kept) == bayesian.MAX_POINTS and kept.max() < 600
    assert set(range(bayesian.MAX_POINTS // 2)) <= set(kept)
