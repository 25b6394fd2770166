"""Scales: each value has its place, each place its value, by the formulas of the documents."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.rules.tuning.search.scales import code_of, from_unit, random_codes, to_unit, value_of
from jobs.rules.tuning.search.unit_place import unit_place, unit_places
from jobs.rules.tuning.space import Kind, Parameter, Scale, has_value
from tests.unit.jobs.rules.tuning.spaces import doubles, integers, listed, values_of
from tests.unit.jobs.rules.views import examples

UNITS = st.floats(0.0, 1.0)
PARAMETERS = st.one_of(doubles(), integers(), listed())


def at(parameter, unit):
    return float(from_unit(parameter, np.array([unit]))[0])


def place(parameter, code):
    return float(to_unit(parameter, np.array([code]))[0])


def slow(scale, low, high, unit):
    """The formulas as they are written down."""
    log = math.log
    if scale is Scale.LINEAR:
        return low + unit * (high - low)
    if scale is Scale.LOG:
        return math.exp(log(low) + unit * (log(high) - log(low)))
    return low + high - math.exp(log(high) - unit * (log(high) - log(low)))


@examples(300)
@given(doubles(), UNITS)
def test_doubles_follow_the_formulas(parameter, unit):
    low, high = parameter.low, parameter.high
    expected = min(high, max(low, slow(parameter.scale, low, high, unit)))
    assert at(parameter, unit) == pytest.approx(expected, rel=1e-9, abs=1e-9 * (high - low))


@examples(300)
@given(PARAMETERS, UNITS, UNITS)
def test_places_have_values_in_their_order(parameter, one, other):
    low, high = sorted((one, other))
    assert at(parameter, low) <= at(parameter, high)
    assert has_value(parameter, value_of(parameter, at(parameter, one)))
    assert 0.0 <= place(parameter, at(parameter, one)) <= 1.0


@examples(300)
@given(st.one_of(integers(largest=10**6), listed()), st.data())
def test_the_place_of_a_whole_number_or_listed_value_leads_back_to_it(parameter, data):
    value = data.draw(values_of(parameter))
    code = code_of(parameter, value)
    assert value_of(parameter, at(parameter, place(parameter, code))) == value


@examples(300)
@given(doubles(), st.data())
def test_the_place_of_a_double_leads_back_near_it(parameter, data):
    value = data.draw(values_of(parameter))
    back = at(parameter, place(parameter, value))
    assert back == pytest.approx(value, rel=1e-6, abs=1e-6 * (parameter.high - parameter.low))


def test_the_ends_are_the_bounds():
    for scale in Scale:
        rate = Parameter("rate", Kind.DOUBLE, 1e-5, 0.1, scale=scale)
        assert (at(rate, 0.0), at(rate, 1.0)) == pytest.approx((1e-5, 0.1), rel=1e-12)
        assert at(rate, 0.0) >= 1e-5 and at(rate, 1.0) <= 0.1


def test_log_is_fine_below_and_reverse_log_above():
    log = Parameter("x", Kind.DOUBLE, 1.0, 100.0, scale=Scale.LOG)
    reverse = Parameter("x", Kind.DOUBLE, 1.0, 100.0, scale=Scale.REVERSE_LOG)
    assert at(log, 0.5) == pytest.approx(10.0) and at(reverse, 0.5) == pytest.approx(91.0)


@pytest.mark.parametrize(
    "parameter",
    [
        Parameter("n", Kind.INTEGER, 0, 2),
        Parameter("d", Kind.DISCRETE, values=(1.0, 10.0, 100.0)),
        Parameter("c", Kind.CATEGORICAL, values=("a", "b", "c")),
    ],
)
def test_each_of_a_few_values_is_drawn_equally_often(parameter):
    codes = random_codes(parameter, (np.arange(3000) + 0.5) / 3000)
    assert np.unique(codes, return_counts=True)[1].tolist() == [1000, 1000, 1000]


def test_huge_bounds_give_no_infinities():
    for scale in (Scale.LOG, Scale.REVERSE_LOG):
        huge = Parameter("x", Kind.DOUBLE, 1e-300, 1.7e308, scale=scale)
        assert all(math.isfinite(at(huge, unit)) for unit in (0.0, 0.3, 1.0))
    near = Parameter("x", Kind.DOUBLE, 1e300, math.nextafter(1e300, math.inf), scale=Scale.LOG)
    assert place(near, 1e300) == 0.5


def test_what_is_no_value_here_has_no_code():
    optimizer = Parameter("optimizer", Kind.CATEGORICAL, values=("sgd",))
    assert math.isnan(code_of(optimizer, "adam")) and math.isnan(code_of(optimizer, 1.0))
    assert math.isnan(code_of(Parameter("n", Kind.INTEGER, 1, 2), "1"))


@examples(300)
@given(PARAMETERS, st.data())
def test_the_place_for_pages_is_the_same_as_that_for_the_search(parameter, data):
    value = data.draw(values_of(parameter))
    expected = place(parameter, code_of(parameter, value))
    assert unit_place(parameter, value) == pytest.approx(expected, abs=1e-9)
    many = [value, None, *data.draw(st.lists(values_of(parameter), max_size=3)), "no value of it", -1e308]
    assert unit_places(parameter, many) == [
        None if each is None else unit_place(parameter, each) for each in many
    ]


def test_what_is_no_value_has_no_place():
    listed_one = Parameter("kind", Kind.CATEGORICAL, values=("a", "b"))
    assert unit_place(listed_one, "c") is None and unit_place(listed_one, "b") == 1.0
    bounded = Parameter("x", Kind.DOUBLE, 1.0, 2.0, scale=Scale.LOG)
    assert [unit_place(bounded, value) for value in ("a", 0.5, 3, 1.0)] == [None, None, None, 0.0]
