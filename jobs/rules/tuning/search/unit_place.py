"""Where one value lies between the bounds of its parameter, without numpy: pages draw it, and web processes load none.

`scales.py` has the same formulas for arrays; a test compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from jobs.rules.tuning.space import Parameter, Scale, Value, place_of


def unit_place(parameter: Parameter, value: Value) -> float | None:
    """From 0 to 1 on the scale of the parameter; None for what is no value of it."""
    if parameter.values:
        place = place_of(parameter, value)
        return None if place is None else _share(float(place), 0.0, len(parameter.values) - 1.0)
    if isinstance(value, str) or not parameter.low <= value <= parameter.high:
        return None
    low, high = parameter.low, parameter.high
    if parameter.scale is Scale.LOG:
        return _share(math.log(value), math.log(low), math.log(high))
    if parameter.scale is Scale.REVERSE_LOG:
        mirrored = min(max(high - (value - low), low), high)
        return _share(-math.log(mirrored), -math.log(high), -math.log(low))
    return _share(float(value), low, high)


def unit_places(parameter: Parameter, values: Iterable[Value | None]) -> list[float | None]:
    """The same for many values, of which some may be missing."""
    low, high = parameter.low, parameter.high
    if parameter.values or parameter.scale is not Scale.LINEAR or high <= low:
        return [None if value is None else unit_place(parameter, value) for value in values]
    half, width = low / 2, high / 2 - low / 2
    return [
        (value / 2 - half) / width
        if value is not None and not isinstance(value, str) and low <= value <= high
        else None
        for value in values
    ]


def _share(value: float, low: float, high: float) -> float:
    # Halves first: the distance of two huge numbers is no number.
    return min(max((value / 2 - low / 2) / (high / 2 - low / 2), 0.0), 1.0) if high > low else 0.5
