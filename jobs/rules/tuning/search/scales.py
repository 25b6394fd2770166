"""The unit cube: where a value lies between the bounds of its parameter, and which value lies there.

| scale | value at u, from `low` at 0 to `high` at 1 |
| --- | --- |
| UNIT_LINEAR_SCALE | low + u (high - low) |
| UNIT_LOG_SCALE | exp(log low + u (log high - log low)): fine near `low` |
| UNIT_REVERSE_LOG_SCALE | low + high - exp(log high - u (log high - log low)): fine near `high` |

Integers are rounded after scaling. A listed value (CATEGORICAL, DISCRETE) is its place in the list, on a linear scale.
The functions take and give arrays of *codes*: the value of DOUBLE and INTEGER, the place of a listed value.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from jobs.rules.tuning.space import Kind, Parameter, Scale, Value, place_of

Array = NDArray[np.float64]


def code_of(parameter: Parameter, value: Value) -> float:
    """NaN for a value that the parameter cannot have, which a row of another study may hold. Bounds are not checked."""
    if parameter.values:
        place = place_of(parameter, value)
        return math.nan if place is None else float(place)
    return math.nan if isinstance(value, str) else float(value)


def value_of(parameter: Parameter, code: float) -> Value:
    if parameter.values:
        return parameter.values[int(code)]
    return int(code) if parameter.kind is Kind.INTEGER else float(code)


def bounds(parameter: Parameter) -> tuple[float, float]:
    """The lowest and the highest code."""
    return (0.0, len(parameter.values) - 1.0) if parameter.values else (parameter.low, parameter.high)


def to_unit(parameter: Parameter, codes: Array) -> Array:
    low, high = bounds(parameter)
    if low == high:
        return np.full_like(codes, 0.5)
    codes = np.clip(codes, low, high)
    scale = Scale.LINEAR if parameter.values else parameter.scale
    return np.clip(_place(scale, codes, low, high), 0.0, 1.0)


def from_unit(parameter: Parameter, units: Array) -> Array:
    low, high = bounds(parameter)
    scale = Scale.LINEAR if parameter.values else parameter.scale
    return _possible(parameter, _scaled(scale, units, low, high))


def random_codes(parameter: Parameter, units: Array) -> Array:
    """The codes for random units. Each whole number is as likely as the length of its interval on the scale says.

    `from_unit` gives the numbers at the bounds half of their interval: what lies beyond the bounds is cut off.
    """
    low, high = bounds(parameter)
    if parameter.kind is Kind.DOUBLE:
        return from_unit(parameter, units)
    scale = Scale.LINEAR if parameter.values else parameter.scale
    return _possible(parameter, _scaled(scale, units, low - 0.5, high + 0.5))


def _scaled(scale: Scale, units: Array, low: float, high: float) -> Array:
    if scale is Scale.LINEAR:
        return low + units * (high - low)
    ratio = math.log(high) - math.log(low)
    if scale is Scale.LOG:
        return np.asarray(np.exp(math.log(low) + units * ratio))
    # In this order no sum is larger than `high`.
    return low + (high - np.exp(math.log(high) - units * ratio))


def _place(scale: Scale, values: Array, low: float, high: float) -> Array:
    if scale is Scale.LINEAR:
        return (values - low) / (high - low)
    ratio = math.log(high) - math.log(low)
    if ratio == 0:
        return np.full_like(values, 0.5)
    if scale is Scale.LOG:
        return np.asarray((np.log(values) - math.log(low)) / ratio)
    mirrored = np.clip(high - (values - low), low, high)
    return np.asarray((math.log(high) - np.log(mirrored)) / ratio)


def _possible(parameter: Parameter, codes: Array) -> Array:
    low, high = bounds(parameter)
    if parameter.kind is not Kind.DOUBLE:
        codes = np.floor(codes + 0.5)
    return np.clip(codes, low, high)
