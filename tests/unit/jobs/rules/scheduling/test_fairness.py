"""Use that decays by half in a week, and fair shares."""

from __future__ import annotations

import math

import pytest

from jobs.rules.scheduling.fairness import HALF_LIFE_S, Share, decayed, index, used


def test_use_is_forgotten_by_half_in_a_half_life():
    assert decayed(800, HALF_LIFE_S) == 400 and decayed(800, 3 * HALF_LIFE_S) == 100
    assert decayed(800, -60) == 800


@pytest.mark.parametrize(("since", "until"), [(3_600, 0), (86_400 * 30, 0), (86_400 * 9, 86_400 * 2)])
def test_held_gpus_are_summed_second_by_second(since, until):
    steps = 10_000
    step = (since - until) / steps
    slowly = sum(decayed(8 * step, until + (number + 0.5) * step) for number in range(steps))
    assert math.isclose(used(8, since, until), slowly, rel_tol=1e-6)
    assert math.isclose(used(8, since, 0), used(8, since, until) + used(8, until, 0))


def test_nothing_was_used_in_no_time():
    assert used(8, 5, 5) == used(8, 5, 9) == used(8, -3, -9) == 0


def test_normalized_use_is_use_over_weight():
    assert Share(2, 100).normalized_use == Share(1, 50).normalized_use < Share(1, 51).normalized_use
    assert Share(0, 0).normalized_use == math.inf


def test_the_index_is_one_for_equals():
    assert index([3, 3, 3]) == 1 == index([]) and index([5, 0, 0, 0]) == 0.25
