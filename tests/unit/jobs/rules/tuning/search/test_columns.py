"""Points as arrays: whatever is drawn or changed is a point of the space."""

from __future__ import annotations

import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import PCG64, Generator

from jobs.rules.tuning.search.columns import Columns
from jobs.rules.tuning.search.gaussian_process import learn
from jobs.rules.tuning.space import Condition, Kind, Parameter, fill, has_point
from tests.unit.jobs.rules.tuning.spaces import spaces, values_of
from tests.unit.jobs.rules.views import examples

SEEDS = st.integers(0, 2**32)


@examples(200)
@given(spaces(), SEEDS, st.sampled_from([0.0, 0.05, 5.0]), st.sampled_from([0.0, 0.5, 1.0]))
def test_each_drawn_or_changed_row_is_a_point(parameters, seed, step, share):
    columns, dice = Columns(parameters), Generator(PCG64(seed))
    rows = columns.random(dice, 5)
    changed = columns.changed(dice, rows, step, share)
    assert all(has_point(parameters, columns.point(row)) for row in (*rows, *changed))
    if share == 0.0:
        assert np.array_equal(rows, changed, equal_nan=True)


@examples(200)
@given(spaces(), st.data())
def test_a_point_and_its_codes_are_the_same(parameters, data):
    point = fill(parameters, lambda parameter: data.draw(values_of(parameter)))
    columns = Columns(parameters)
    [codes] = columns.codes([point])
    assert columns.point(codes) == point


@examples(200)
@given(spaces(), SEEDS)
def test_what_a_model_sees_lies_in_the_unit_cube(parameters, seed):
    columns = Columns(parameters)
    seen = columns.encode(columns.random(Generator(PCG64(seed)), 4))
    assert seen.shape == (4, len(columns.groups))
    assert ((seen >= 0) & (seen <= 1)).all()


def test_different_categories_are_one_apart():
    columns = Columns([Parameter("c", Kind.CATEGORICAL, values=("a", "b", "c"))])
    one, other = columns.encode(columns.codes([{"c": "a"}, {"c": "c"}]))
    assert np.isclose(((one - other) ** 2).sum(), 1.0)


def test_as_many_categories_as_are_possible_fit_into_memory():
    """The differences of all columns of all points would be a cube of 115 MB for each of these."""
    names = tuple(str(number) for number in range(1000))
    columns = Columns([Parameter(name, Kind.CATEGORICAL, values=names) for name in ("a", "b")])
    dice = Generator(PCG64(1))
    x = columns.encode(columns.random(dice, 60))
    tracemalloc.start()
    learn(x, dice.random(60), columns.groups, 1, samples=1)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 20e6


def test_points_of_another_space_keep_what_is_known_here():
    momentum = Parameter("momentum", Kind.DOUBLE, 0.0, 1.0)
    optimizer = Parameter(
        "optimizer",
        Kind.CATEGORICAL,
        values=("sgd", "adam"),
        conditions=(Condition(("sgd",), momentum),),
    )
    columns = Columns([optimizer, Parameter("rate", Kind.DOUBLE, 0.0, 1.0)])
    foreign = [{"optimizer": "lion", "momentum": 0.5, "rate": 7.0, "gone": 1}, {"optimizer": "sgd"}]
    codes = columns.codes(foreign)
    assert np.array_equal(codes, [[np.nan, np.nan, 7.0], [0.0, np.nan, np.nan]], equal_nan=True)
    assert np.allclose(columns.encode(codes), [[0, 0, 0.5, 1.0], [0.5**0.5, 0, 0.5, 0.5]])


def test_small_steps_stay_near_and_move():
    rate = Parameter("rate", Kind.DOUBLE, 0.0, 1.0)
    columns, dice = Columns([rate]), Generator(PCG64(1))
    changed = columns.changed(dice, np.full((500, 1), 0.5), 0.01, 1.0)
    assert 0.005 < np.abs(changed - 0.5).mean() < 0.012
