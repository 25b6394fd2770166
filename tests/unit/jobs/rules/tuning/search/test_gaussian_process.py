"""The model against slow textbook formulas: posterior, density, expected improvement, and values made comparable."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.random import PCG64, Generator

from jobs.rules.tuning.search import gaussian_process
from jobs.rules.tuning.search.acquisition import log_chance, log_expected_improvement, normal_below
from jobs.rules.tuning.search.gaussian_process import Scales, believing, learn
from jobs.rules.tuning.search.gaussian_process import given as given_scales
from jobs.rules.tuning.search.warping import warp_of
from tests.unit.jobs.rules.views import examples

GROUPS = np.array([0, 1, 1])


def some(count, seed=1):
    dice = Generator(PCG64(seed))
    x = dice.random((count, 3))
    return x, np.sin(5 * x[:, 0]) + x[:, 1] - dice.random(count) * 0.1


def matern(one, other, lengths):
    far = math.sqrt(5.0) * math.dist(one / lengths, other / lengths)
    return (1 + far + far * far / 3) * math.exp(-far)


def covariance(x, z, lengths):
    return np.array([[matern(a, b, lengths) for b in z] for a in x])


def test_the_posterior_is_that_of_the_textbook():
    x, values = some(12)
    z, _ = some(5, seed=2)
    lengths, noise = np.array([0.5, 0.8, 0.8]), 0.01
    process = given_scales(x, values, Scales(1 / lengths, noise))
    inverse = np.linalg.inv(covariance(x, x, lengths) + noise * np.eye(12))
    near = covariance(z, x, lengths)
    variance = (values @ inverse @ values + 1) / 13
    mean, deviation = process.mean_and_deviation(z)
    assert np.allclose(mean, near @ inverse @ values, rtol=1e-4)
    assert np.allclose(deviation**2, variance * (1 - np.diag(near @ inverse @ near.T)), rtol=1e-4)


def test_the_density_of_lengths_and_noise_is_that_of_the_textbook():
    x, values = some(12)
    density = gaussian_process._posterior(x, values, GROUPS)

    def slow(sample):
        lengths = np.exp(sample[:2])[GROUPS]
        kernel = covariance(x, x, lengths) + math.exp(sample[2]) * np.eye(12)
        variance = (values @ np.linalg.inv(kernel) @ values + 1) / 13
        likelihood = -0.5 * 12 * math.log(variance) - 0.5 * np.linalg.slogdet(kernel)[1]
        mean = math.log(0.5 * math.sqrt(2) + 0.2)
        prior = ((sample[0] - mean) / 1.2) ** 2 + ((sample[1] - mean) / 1.2) ** 2 + ((sample[2] + 7) / 2) ** 2
        return likelihood - 0.5 * prior

    samples = [np.array(each) for each in ([-0.7, -0.7, -5.0], [0.5, -2.0, -1.0], [-3.0, 1.0, -7.0])]
    assert [density(each) for each in samples] == pytest.approx([slow(each) for each in samples], rel=1e-6)


def test_what_does_not_matter_gets_a_long_length():
    dice = Generator(PCG64(3))
    x = dice.random((40, 2))
    models = learn(x, np.sin(6 * x[:, 0]), np.array([0, 1]), 1)
    assert all(each.scales.inverse_lengths[0] > 2 * each.scales.inverse_lengths[1] for each in models)


def test_a_believer_is_certain_there_and_changes_no_expectation():
    x, values = some(20)
    [process] = learn(x, values, GROUPS, 1, samples=1)
    z = np.array([[0.9, 0.1, 0.9]])
    before, wide = process.mean_and_deviation(z)
    after, narrow = believing(process, values, z).mean_and_deviation(z)
    assert after == pytest.approx(before, abs=1e-2) and narrow < 0.5 * wide
    twice = np.concatenate([z, z])
    assert believing(process, values, twice).mean(z) == pytest.approx(before, abs=1e-2)


def improvement(mean, deviation, best):
    z = (best - mean) / deviation
    if z < -6:
        far = -z
        series = 1 / far**2 - 3 / far**4 + 15 / far**6 - 105 / far**8
        return -0.5 * z * z - 0.5 * math.log(2 * math.pi) + math.log(series) + math.log(deviation)
    density, below = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi), 0.5 * math.erfc(-z / math.sqrt(2))
    return math.log(deviation * (density + z * below))


@pytest.mark.parametrize("mean", [-30.0, -3.0, 0.0, 0.5, 1.9, 2.1, 4.0, 7.0, 30.0, 1000.0])
def test_the_expected_improvement_is_right_far_out_too(mean):
    found = log_expected_improvement(np.array([mean]), np.array([1.5]), 0.25)[0]
    assert found == pytest.approx(improvement(mean, 1.5, 0.25), rel=1e-3)


@pytest.mark.parametrize("z", [-8.0, -3.0, -1.0, 0.0, 1.0, 4.0])
def test_chances_are_right(z):
    exact = 0.5 * math.erfc(-z / math.sqrt(2))
    assert normal_below(np.array([z]))[0] == pytest.approx(exact, abs=1e-7)
    assert log_chance(np.array([0.0]), np.array([2.0]), 2.0 * z)[0] == pytest.approx(
        math.log(exact), abs=2e-3
    )


ANY_FLOATS = st.lists(st.one_of(st.floats(), st.sampled_from([0.0, 1e300, -1e300])), min_size=1, max_size=20)


@examples(400)
@given(ANY_FLOATS)
def test_any_values_become_small_numbers_in_the_same_order(values):
    values = np.array(values)
    warped = warp_of(values).apply(values)
    assert np.isfinite(warped).all() and np.abs(warped).max() < 100
    finite = np.isfinite(values) & (np.abs(values) < 1e99)
    order = np.argsort(values[finite], kind="stable")
    assert (np.diff(warped[finite][order]) >= 0).all()
    if finite.any() and not finite.all():
        assert (warped[~np.isfinite(values)] >= warped[finite].max()).all()


@examples(200)
@example([0.0, 1.0, 1.5e-131])  # the better half is far narrower than the rest
@example([0.0, 1e100, 1.5e-199])
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_a_warped_value_leads_back(values):
    warp = warp_of(np.array(values))
    back = [warp.invert(float(each)) for each in warp.apply(np.array(values))]
    assert back == pytest.approx(values, rel=1e-6, abs=1e-6 * warp.scale)


def test_one_diverged_trial_does_not_flatten_the_rest():
    values = np.array([0.10, 0.11, 0.12, 0.13, 0.14, 1e6])
    warped = warp_of(values).apply(values)
    assert warped[1] - warped[0] > 0.02 * (warped[5] - warped[0])
