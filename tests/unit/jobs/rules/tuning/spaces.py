"""Random spaces of every kind, and points of them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from jobs.rules.tuning.space import Condition, Kind, Parameter, Scale

NAMES = st.text("abcdefghijklmnop_", min_size=1, max_size=6)
FLOATS = st.floats(-1e6, 1e6, allow_subnormal=False)
POSITIVE = st.floats(1e-6, 1e6, allow_subnormal=False)


@st.composite
def doubles(draw, name="x"):
    scale = draw(st.sampled_from(Scale))
    low, high = sorted(draw(st.tuples(*[FLOATS if scale is Scale.LINEAR else POSITIVE] * 2)))
    return Parameter(name, Kind.DOUBLE, low, high, scale=scale)


@st.composite
def integers(draw, name="n", largest=2**40):
    scale = draw(st.sampled_from(Scale))
    low = draw(st.integers(-largest if scale is Scale.LINEAR else 1, largest))
    return Parameter(name, Kind.INTEGER, low, draw(st.integers(low, largest)), scale=scale)


@st.composite
def listed(draw, name="c"):
    if draw(st.booleans()):
        values = draw(st.lists(st.text("abc é'\"$", max_size=4), min_size=1, max_size=5, unique=True))
        return Parameter(name, Kind.CATEGORICAL, values=tuple(values))
    steps = draw(st.lists(st.integers(-1000, 1000), min_size=1, max_size=6, unique=True))
    return Parameter(name, Kind.DISCRETE, values=tuple(step / 8 for step in sorted(steps)))


@st.composite
def small_integers(draw, name="n"):
    low = draw(st.integers(-5, 5))
    return Parameter(name, Kind.INTEGER, low, low + draw(st.integers(0, 6)))


def values_of(parameter):
    """A strategy for one of its values."""
    if parameter.values:
        return st.sampled_from(parameter.values)
    if parameter.kind is Kind.INTEGER:
        return st.integers(int(parameter.low), int(parameter.high))
    return st.floats(parameter.low, parameter.high)


@st.composite
def trees(draw, leaf, names=None, depth=2):
    """A parameter with conditions below it. Every name is new."""
    names = names if names is not None else iter(f"p{number}" for number in range(1000))
    parameter = draw(leaf.map(lambda each: replace(each, name=next(names))))
    if depth and parameter.kind is not Kind.DOUBLE and draw(st.booleans()):
        conditions = tuple(
            Condition(
                tuple(draw(st.lists(values_of(parameter), min_size=1, max_size=3))),
                draw(trees(leaf, names, depth - 1)),
            )
            for _ in range(draw(st.integers(1, 2)))
        )
        parameter = replace(parameter, conditions=conditions)
    return parameter


@st.composite
def spaces(draw, finite=False, most=3):
    names = iter(f"p{number}" for number in range(1000))
    leaf = st.one_of(listed(), small_integers())
    leaf = leaf if finite else st.one_of(leaf, doubles(), integers())
    return tuple(draw(trees(leaf, names)) for _ in range(draw(st.integers(1, most))))
