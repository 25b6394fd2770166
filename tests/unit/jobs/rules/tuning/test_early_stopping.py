"""The rules that stop trials early, each against its document's words written down slowly."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import PCG64, Generator

from jobs.rules.tuning.search.gaussian_process import learn
from jobs.rules.tuning.stopping.curves import Completed, Curve, completed, curve_of
from jobs.rules.tuning.stopping.decay_curve_rule import chance_of_best, decay_curve_stops
from jobs.rules.tuning.stopping.early_stopping import stops
from jobs.rules.tuning.study import EarlyStopping, Goal, Metric, Rule, StudySpec
from jobs.rules.tuning.trials import Measurement, Trial, TrialState
from jobs.rules.tuning.views import TrialChange
from jobs.tuning import snapshot
from tests.unit.jobs.rules.views import examples

ACCURACY, LOSS = Metric("accuracy"), Metric("loss", Goal.MINIMIZE)
MEDIAN, CONVEX, DECAY = (EarlyStopping(rule) for rule in (Rule.MEDIAN, Rule.CONVEX, Rule.DECAY_CURVE))


def trial(number, values, state=TrialState.ACTIVE, metric="accuracy", **fields):
    """One measurement at each step from 1, ten seconds apart."""
    measured = tuple(
        Measurement(step, {metric: value}, 10.0 * step) for step, value in enumerate(values, start=1)
    )
    final = measured[-1] if state is TrialState.SUCCEEDED else None
    return Trial(number, state, {"x": number}, measured, final, **fields)


def done(number, values, **fields):
    return trial(number, values, TrialState.SUCCEEDED, **fields)


def rising(top, steps=20):
    """A curve of training towards `top`."""
    return [top * (1 - math.exp(-step / 6)) for step in range(1, steps + 1)]


GOOD = [done(number, rising(0.80 + number / 100)) for number in range(6)]
VALUES = st.one_of(st.integers(0, 40).map(lambda value: value / 8), st.just(math.nan), st.just(math.inf))
ROWS = st.lists(VALUES, min_size=1, max_size=12)


# Slow references: exact fractions, loops, and the words of the documents.


def numbers(each, elapsed, goal):
    """(when, value to be maximized) of each measurement that is a number."""
    found = []
    for measurement in each.measurements:
        value = measurement.metrics["accuracy"]
        if math.isfinite(value):
            exact = Fraction(value) if goal is Goal.MAXIMIZE else -Fraction(value)
            found.append((Fraction(measurement.elapsed_s if elapsed else measurement.step), exact))
    return found


def slow_stops(pending, others, metric, early):
    goal, elapsed = metric.goal, early.use_elapsed
    own = numbers(pending, elapsed, goal)
    full = [each for each in others if each.state is TrialState.SUCCEEDED and not each.stopped_early]
    full = [each for each in full if numbers(each, elapsed, goal)]
    finals = {}
    for each in full:
        value = each.final.metrics["accuracy"]
        if math.isfinite(value):
            finals[each.number] = Fraction(value) if goal is Goal.MAXIMIZE else -Fraction(value)
    full = [each for each in full if each.number in finals]
    if len(own) < early.min_measurements or len(full) < early.min_measurements + 1:
        return False
    if max(value for _, value in own) >= max(finals.values()):
        return False
    rule = slow_median if early.rule is Rule.MEDIAN else slow_convex
    return rule(own, [numbers(each, elapsed, goal) for each in full], max(finals.values()), early)


def slow_median(own, full, best, early):
    last = own[-1][0]
    performances = []
    for curve in full:
        reported = [value for at, value in curve if at <= last]
        if reported:
            performances.append(sum(reported) / len(reported))
    if not performances:
        return False
    performances.sort()
    count = len(performances)
    middle = (performances[(count - 1) // 2] + performances[count // 2]) / 2
    return max(value for _, value in own) < middle


def slow_convex(own, full, best, early):
    steps = Fraction(early.max_steps or max(curve[-1][0] for curve in full))
    least = Fraction(early.min_steps) or steps / 10
    if not least < own[-1][0] < steps:
        return False
    newest = own[-max(early.min_measurements, (len(own) + 1) // 2) :]
    if len({value for _, value in newest}) == 1:
        return False
    count = len(newest)
    at = sum(when for when, _ in newest) / count
    mean = sum(value for _, value in newest) / count
    slope = sum((when - at) * (value - mean) for when, value in newest)
    slope /= sum((when - at) ** 2 for when, _ in newest)
    return max(mean + slope * (steps - at), max(value for _, value in own)) < best


@examples(500)
@given(
    ROWS,
    st.lists(st.tuples(ROWS, st.booleans(), st.sampled_from(TrialState)), max_size=9),
    st.sampled_from(Goal),
    st.sampled_from([Rule.MEDIAN, Rule.CONVEX]),
    st.booleans(),
    st.integers(1, 5),
    st.integers(0, 15),
    st.integers(0, 6),
)
def test_median_and_convex_are_as_the_documents_say(own, others, goal, rule, elapsed, least, most, begin):
    metric, pending = Metric("accuracy", goal), trial(0, own)
    known = [
        trial(number, values, state, stopped_early=early)
        for number, (values, early, state) in enumerate(others, start=1)
    ]
    early = EarlyStopping(rule, elapsed, most, begin, least)
    expected = slow_stops(pending, known, metric, early)
    assert stops(pending, known, metric, early) is expected


@pytest.mark.parametrize("early", [MEDIAN, CONVEX, DECAY], ids=str)
def test_a_hopeless_trial_is_stopped_and_a_good_one_is_not(early):
    hopeless, good = trial(9, rising(0.2)[:8]), trial(9, rising(0.9)[:8])
    assert stops(hopeless, GOOD, ACCURACY, early)
    assert not stops(good, GOOD, ACCURACY, early)
    losses = [
        replace(
            each,
            measurements=tuple(
                replace(one, metrics={"loss": -one.metrics["accuracy"]}) for one in each.measurements
            ),
            final=each.final and replace(each.final, metrics={"loss": -each.final.metrics["accuracy"]}),
        )
        for each in (hopeless, *GOOD)
    ]
    assert stops(losses[0], losses[1:], LOSS, early)


@pytest.mark.parametrize("early", [MEDIAN, CONVEX, DECAY], ids=str)
def test_what_protects_a_trial(early):
    """Too few measurements, too few completed trials, or a value as good as the best."""
    hopeless = trial(9, rising(0.2)[:8])
    assert not stops(trial(9, rising(0.2)[:4]), GOOD, ACCURACY, early)
    assert not stops(hopeless, GOOD[1:], ACCURACY, early)
    stopped = [replace(each, stopped_early=True) for each in GOOD]
    assert not stops(hopeless, stopped, ACCURACY, early)
    best = trial(9, [0.99, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1])
    assert not stops(best, GOOD, ACCURACY, early)
    assert not stops(trial(9, [math.nan] * 8), GOOD, ACCURACY, early)


def test_the_median_is_of_running_averages_up_to_the_same_step():
    """What the others did later does not count: at step 5 their averages are 0.5."""
    others = [done(number, [0.5] * 5 + [0.9] * 15) for number in range(6)]
    assert not stops(trial(9, [0.5] * 5), others, ACCURACY, MEDIAN)
    assert stops(trial(9, [0.49] * 5), others, ACCURACY, MEDIAN)
    assert stops(trial(9, [0.5] * 8), others, ACCURACY, MEDIAN)


def test_elapsed_time_is_compared_with_elapsed_time():
    """The pending trial is as good at each step, but takes four times as long."""
    slow = trial(9, rising(0.82)[:8])
    slow = replace(
        slow, measurements=tuple(replace(each, elapsed_s=each.elapsed_s * 4) for each in slow.measurements)
    )
    assert not stops(slow, GOOD, ACCURACY, MEDIAN)
    assert stops(slow, GOOD, ACCURACY, replace(MEDIAN, use_elapsed=True))


def test_the_convex_rule_makes_no_prediction_of_a_flat_curve_and_waits_for_its_steps():
    assert not stops(trial(9, [0.1] * 8), GOOD, ACCURACY, CONVEX)
    hopeless = trial(9, rising(0.2)[:8])
    assert stops(hopeless, GOOD, ACCURACY, replace(CONVEX, min_steps=7))
    assert not stops(hopeless, GOOD, ACCURACY, replace(CONVEX, min_steps=8))
    assert not stops(hopeless, GOOD, ACCURACY, replace(CONVEX, max_steps=1000))
    assert not stops(trial(9, rising(0.2, 20)), GOOD, ACCURACY, CONVEX)


# The decay curve rule.


def slow_chance(curve, others):
    """Textbook regression with the lengths and the noise that were learnt: kernels by loops, a dense inverse."""

    def features(each):
        now = [cost for at, cost in zip(each.at, each.costs, strict=True) if at <= curve.end][-1]
        half = [cost for at, cost in zip(each.at, each.costs, strict=True) if at <= curve.end / 2]
        return np.array([now, now - (half[-1] if half else each.costs[0])])

    seen = np.array([features(each.curve) for each in others])
    gains = np.array([each.final for each in others]) - seen[:, 0]
    x, own = (seen - seen.mean(0)) / seen.std(0), (features(curve) - seen.mean(0)) / seen.std(0)
    y = (gains - gains.mean()) / gains.std()
    wanted = (min(each.final for each in others) - features(curve)[0] - gains.mean()) / gains.std()
    chances = []
    for process in learn(x, y, np.arange(2), 1):

        def kernel(a, b, scale=process.scales.inverse_lengths):
            far = math.sqrt(5) * math.dist(a * scale, b * scale)
            return (1 + far + far * far / 3) * math.exp(-far)

        table = np.array([[kernel(a, b) for b in x] for a in x]) + process.scales.noise * np.eye(len(x))
        near = np.array([kernel(own, b) for b in x])
        variance = (y @ np.linalg.inv(table) @ y + 1) / (len(x) + 1)
        mean = near @ np.linalg.inv(table) @ y
        spread = math.sqrt(variance * (1 - near @ np.linalg.inv(table) @ near + process.scales.noise))
        chances.append(0.5 * math.erfc(-(wanted - mean) / spread / math.sqrt(2)))
    return sum(chances) / len(chances)


def noisy_curves(seed, count=9):
    dice = Generator(PCG64(seed))
    tops = 0.5 + 0.4 * dice.random(count)
    trials = [
        done(number, [value + 0.01 * dice.standard_normal() for value in rising(top)])
        for number, top in enumerate(tops)
    ]
    pending = trial(99, rising(0.5 + 0.5 * dice.random())[: int(dice.integers(5, 15))])
    return curve_of(pending, ACCURACY, False), completed(trials, ACCURACY, False)


@examples(40)
@given(st.integers(0, 10_000))
def test_the_chance_of_a_trial_is_that_of_the_textbook(seed):
    curve, others = noisy_curves(seed)
    expected = slow_chance(curve, others)
    assert chance_of_best(curve, others) == pytest.approx(expected, abs=1e-3)
    assert decay_curve_stops(curve, others) is (expected < 0.05) or abs(expected - 0.05) < 1e-3


def test_the_chance_follows_the_level_of_the_curve():
    _, others = noisy_curves(1)
    chances = [
        chance_of_best(curve_of(trial(9, rising(top)[:12]), ACCURACY, False), others)
        for top in (0.3, 0.5, 0.7, 0.85, 0.99)
    ]
    chances = [round(chance, 9) for chance in chances]
    assert chances == sorted(chances) and chances[0] < 0.05 and chances[-1] > 0.5


def test_few_curves_teach_nothing():
    curve, others = noisy_curves(1)
    assert chance_of_best(curve, others[:5]) is None and not decay_curve_stops(curve, others[:5])
    late = [Completed(Curve((500.0,), each.curve.costs[-1:]), each.final) for each in others]
    assert chance_of_best(curve, late) is None


WILD = st.lists(st.one_of(st.floats(), st.sampled_from([1e308, -1e308, 0.0, 0.0])), min_size=1, max_size=8)


@examples(200)
@given(WILD, st.lists(WILD, min_size=7, max_size=8), st.sampled_from(Rule), st.integers(1, 5))
def test_no_values_make_a_rule_fail(own, others, rule, least):
    known = [done(number, values) for number, values in enumerate(others)]
    early = EarlyStopping(rule, min_measurements=least)
    assert stops(trial(9, own), known, ACCURACY, early) in (True, False)


# Shadow.


def as_kept(study, each):
    """The trial with those of its measurements that its row keeps when it is over."""
    change = TrialChange(each.state, each.final, each.measurements)
    return replace(each, measurements=snapshot.read_measurements(snapshot.kept(study, change)))


@examples(40)
@given(
    st.lists(st.lists(VALUES, min_size=101, max_size=160), min_size=6, max_size=7),
    st.lists(VALUES, min_size=5, max_size=40),
    st.booleans(),
    st.sampled_from(Goal),
)
def test_the_median_rule_compares_with_all_that_others_measured(curves, own, elapsed, goal):
    """A row keeps about a hundred measurements of a trial, among them its lowest and its highest."""
    metric, early = Metric("accuracy", goal), replace(MEDIAN, use_elapsed=elapsed)
    study = StudySpec((metric,), (), early=early)
    others = [done(number, values) for number, values in enumerate(curves)]
    full, kept = (
        [curve_of(each, metric, elapsed) for each in found]
        for found in (others, [as_kept(study, each) for each in others])
    )
    for whole, few in zip(full, kept, strict=True):
        assert len(few.at) < len(whole.at) or len(whole.at) <= 110
        for at in few.at:
            assert few.until(at).average == pytest.approx(whole.until(at).average)


@pytest.mark.parametrize("elapsed", [False, True])
def test_a_spike_in_a_long_curve_stops_nobody_and_spares_nobody(elapsed):
    """A thousand measurements, of which a hundred are kept: the spike would count ten times as much there."""
    early = replace(MEDIAN, use_elapsed=elapsed)
    study = StudySpec((LOSS,), (), early=early)

    def spiky(number):
        values = [0.5] * 1000
        values[300 + number] = 400.0
        return done(number, values, metric="loss")

    others = [spiky(number) for number in range(7)]
    # The averages of all are 0.9; those of what is kept would be 4.3.
    worse = trial(9, [2.0] * 1000, metric="loss")
    assert stops(worse, others, LOSS, early)
    assert stops(worse, [as_kept(study, each) for each in others], LOSS, early)
    assert not stops(
        trial(9, [0.6] * 1000, metric="loss"), [as_kept(study, each) for each in others], LOSS, early
    )
