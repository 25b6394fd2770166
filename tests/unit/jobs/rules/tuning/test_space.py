"""Spaces: what is active, how many points there are, and each point once by its number."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jobs.rules.tuning.space import (
    Condition,
    Kind,
    Parameter,
    fill,
    has_point,
    has_value,
    key,
    point_at,
    size,
)
from tests.unit.jobs.rules.tuning.spaces import spaces, values_of
from tests.unit.jobs.rules.views import examples

MOMENTUM = Parameter("momentum", Kind.DISCRETE, values=(0.0, 0.9, 0.99))
NESTEROV = Parameter("nesterov", Kind.CATEGORICAL, values=("on", "off"))
WITH_NESTEROV = replace(MOMENTUM, conditions=(Condition((0.9, 0.99), NESTEROV),))
OPTIMIZER = Parameter(
    "optimizer",
    Kind.CATEGORICAL,
    values=("adam", "sgd", "lion"),
    conditions=(Condition(("sgd",), WITH_NESTEROV),),
)
LAYERS = Parameter("layers", Kind.INTEGER, 1, 4)


def all_points(parameters):
    return [point_at(parameters, number) for number in range(size(parameters))]


def test_a_nested_space_has_each_of_its_points_once():
    # adam, lion; sgd with momentum 0, and with two momenta of two kinds each: 2 + 1 + 4, times 4 layers.
    points = all_points((OPTIMIZER, LAYERS))
    assert size((OPTIMIZER, LAYERS)) == len({key(point) for point in points}) == 28
    assert {"optimizer": "sgd", "momentum": 0.9, "nesterov": "off", "layers": 3} in points
    assert {"optimizer": "sgd", "momentum": 0.0, "layers": 1} in points
    assert {"optimizer": "adam", "layers": 4} in points


def test_two_conditions_may_make_parameters_of_one_name_active():
    few, many = Parameter("units", Kind.INTEGER, 1, 2), Parameter("units", Kind.INTEGER, 10, 12)
    layers = replace(LAYERS, conditions=(Condition((1, 2), few), Condition((3,), many)))
    points = all_points((layers,))
    assert len(points) == size((layers,)) == 2 + 2 + 3 + 1
    assert {"layers": 3, "units": 12} in points and {"layers": 4} in points
    assert not has_point((layers,), {"layers": 3, "units": 2})


def test_a_double_makes_a_space_without_end_only_where_it_can_be_active():
    rate = Parameter("rate", Kind.DOUBLE, 0.0, 1.0)
    assert size((rate,)) is None and size((replace(rate, high=0.0),)) == 1
    assert size((replace(OPTIMIZER, conditions=(Condition(("sgd",), rate),)),)) is None


def test_a_huge_integer_is_counted_without_being_listed():
    child = Parameter("child", Kind.CATEGORICAL, values=("a", "b"))
    huge = Parameter("n", Kind.INTEGER, -(2**50), 2**50, conditions=(Condition((7, 3), child),))
    total = size((huge,))
    assert total == 2**51 + 1 + 2
    assert point_at((huge,), 0) == {"n": 7, "child": "a"} and point_at((huge,), 3) == {"n": 3, "child": "b"}
    assert point_at((huge,), total - 1) == {"n": 2**50}


def test_values_that_switch_the_same_on_are_counted_once_and_not_each():
    """One after the other they would be 200 to the power of eight."""
    deep = Parameter("p8", Kind.INTEGER, 1, 200)
    for level in range(7, 0, -1):
        every = tuple(range(1, 201))
        deep = Parameter(f"p{level}", Kind.INTEGER, 1, 200, conditions=(Condition(every, deep),))
    assert size((deep,)) == 200**8
    assert point_at((deep,), 200**8 - 1) == {f"p{level}": 200 for level in range(1, 9)}


@examples(300)
@given(spaces(finite=True))
def test_the_points_of_a_finite_space_are_counted_right(parameters):
    """Against a slow count: all choices that `fill` can be given."""
    total = size(parameters)
    assume(total <= 5_000)
    points = {key(point) for point in all_points(parameters)}
    assert len(points) == total == len(set(every_point(parameters)))
    assert all(has_point(parameters, dict(point)) for point in points)


def every_point(parameters):
    """Each choice is tried at each place: an odometer over what `fill` asks for."""
    digits = []
    while True:
        used = []

        def choose(parameter, used=used, digits=digits):
            if len(used) == len(digits):
                digits.append(0)
            used.append(parameter.count)
            return parameter.value_at(digits[len(used) - 1])

        yield key(fill(parameters, choose))
        while digits and digits[-1] == used[len(digits) - 1] - 1:
            digits.pop()
        if not digits:
            return
        digits[-1] += 1


@examples(300)
@given(spaces(), st.data())
def test_what_is_filled_is_a_point_and_what_is_changed_is_none(parameters, data):
    point = fill(parameters, lambda parameter: data.draw(values_of(parameter)))
    assert has_point(parameters, point)
    name = data.draw(st.sampled_from(sorted(point)))
    assert not has_point(parameters, {**point, "not-there": 1})
    assert not has_point(parameters, {each: point[each] for each in point if each != name})


@pytest.mark.parametrize(
    ("parameter", "value", "right"),
    [
        (LAYERS, 4, True),
        (LAYERS, 5, False),
        (LAYERS, 2.5, False),
        (LAYERS, "2", False),
        (MOMENTUM, 0.9 + 1e-11, True),
        (MOMENTUM, 0.91, False),
        (OPTIMIZER, "sgd", True),
        (OPTIMIZER, "SGD", False),
        (OPTIMIZER, 1.0, False),
        (Parameter("x", Kind.DOUBLE, 0.0, 1.0), 1.0, True),
        (Parameter("x", Kind.DOUBLE, 0.0, 1.0), float("nan"), False),
    ],
)
def test_values(parameter, value, right):
    assert has_value(parameter, value) is right
