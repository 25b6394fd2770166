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
    if parameter.values or parameter.scale is Scale.REVERSE_LOG or high <= low:
        return _each_once(parameter, values)
    known = [
        None if value is None or isinstance(value, str) or not low <= value <= high else value
        for value in values
    ]
    if parameter.scale is Scale.LINEAR:
        half, width = low / 2, high / 2 - low / 2
        return [None if value is None else (value / 2 - half) / width for value in known]
    log, half = math.log, math.log(low) / 2
    width = math.log(high) / 2 - half
    # Both ends may come out beside 0 and 1 by the last digit.
    return [None if value is None else min(max((log(value) / 2 - half) / width, 0.0), 1.0) for value in known]


def _each_once(parameter: Parameter, values: Iterable[Value | None]) -> list[float | None]:
    """By one look for each different value: of many trials few have another one."""
    found: dict[tuple[type, Value], float | None] = {}
    places: list[float | None] = []
    for value in values:
        if value is None:
            places.append(None)
            continue
        key = (type(value), value)
        if key not in found:
            found[key] = unit_place(parameter, value)
        places.append(found[key])
    return places


def _share(value: float, low: float, high: float) -> float:
    # Halves first: the distance of two huge numbers is no number.
    return min(max((value / 2 - low / 2) / (high / 2 - low / 2), 0.0), 1.0) if high > low else 0.5
