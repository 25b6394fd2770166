"""The space that a study searches: parameters, their conditions, and the points of a finite space by number.

A *point* gives a value to each active parameter. A parameter below a condition is active where its parent is active
and has one of the condition's values. Two parameters may have the same name if no point has both: so a parameter is
told apart by the condition that it stands below, and by its name only within a point.

Values are floats for DOUBLE and DISCRETE, ints for INTEGER, strings for CATEGORICAL.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

Value = float | int | str
Point = dict[str, Value]

# Discrete values that are nearer to each other than this are one.
EPSILON = 1e-10


class Kind(StrEnum):
    DOUBLE = "DOUBLE"
    INTEGER = "INTEGER"
    CATEGORICAL = "CATEGORICAL"
    DISCRETE = "DISCRETE"


class Scale(StrEnum):
    """How the values of a parameter lie between its bounds: see `scales.py` for the formulas."""

    LINEAR = "UNIT_LINEAR_SCALE"
    LOG = "UNIT_LOG_SCALE"
    REVERSE_LOG = "UNIT_REVERSE_LOG_SCALE"


@dataclass(frozen=True, slots=True)
class Parameter:
    """`low` and `high`: bounds of DOUBLE and INTEGER, both possible. `values`: of CATEGORICAL and DISCRETE."""

    name: str
    kind: Kind
    low: float = 0.0
    high: float = 0.0
    values: tuple[Value, ...] = ()
    scale: Scale = Scale.LINEAR
    default: Value | None = None
    conditions: tuple[Condition, ...] = ()

    @property
    def count(self) -> int | None:
        """How many values it has. None: without end."""
        if self.values:
            return len(self.values)
        if self.kind is Kind.INTEGER:
            return int(self.high) - int(self.low) + 1
        return 1 if self.low == self.high else None

    def value_at(self, index: int) -> Value:
        """One of its `count` values."""
        if self.values:
            return self.values[index]
        return int(self.low) + index if self.kind is Kind.INTEGER else self.low


@dataclass(frozen=True, slots=True)
class Condition:
    """The parameter is active where its parent has one of `values`, which are written as the parent has them."""

    values: tuple[Value, ...]
    parameter: Parameter

    def holds(self, value: Value) -> bool:
        return value in self.values


def fill(parameters: Sequence[Parameter], choose: Callable[[Parameter], Value]) -> Point:
    """A point of the space. `choose` is asked for the value of each active parameter, parents before children."""
    point: Point = {}
    todo = list(reversed(parameters))
    while todo:
        parameter = todo.pop()
        value = point[parameter.name] = choose(parameter)
        todo += [each.parameter for each in reversed(parameter.conditions) if each.holds(value)]
    return point


def flat(parameters: Sequence[Parameter]) -> Iterator[Parameter]:
    """All parameters, those below conditions too, parents before children."""
    for parameter in parameters:
        yield parameter
        yield from flat([condition.parameter for condition in parameter.conditions])


def has_point(parameters: Sequence[Parameter], point: Mapping[str, Value]) -> bool:
    """Whether this is a point of the space: each active parameter has one of its values, and no other is there."""
    todo, names = list(parameters), set()
    while todo:
        parameter = todo.pop()
        value = point.get(parameter.name)
        if value is None or not has_value(parameter, value):
            return False
        names.add(parameter.name)
        todo += [each.parameter for each in parameter.conditions if each.holds(value)]
    return names == set(point)


def has_value(parameter: Parameter, value: Value) -> bool:
    return own_value(parameter, value) is not None


def own_value(parameter: Parameter, value: Value) -> Value | None:
    """The value of the parameter that this one is the same as. None: it has no such value."""
    if parameter.values:
        place = place_of(parameter, value)
        return None if place is None else parameter.values[place]
    if isinstance(value, str) or (parameter.kind is Kind.INTEGER and int(value) != value):
        return None
    return value if parameter.low <= value <= parameter.high else None


def place_of(parameter: Parameter, value: Value) -> int | None:
    """Which of its listed values this one is the same as. Those of DISCRETE are in increasing order."""
    if parameter.kind is Kind.DISCRETE and not isinstance(value, str):
        place = bisect_left(parameter.values, value - EPSILON)
        found = parameter.values[place] if place < len(parameter.values) else None
        return None if isinstance(found, str) or found is None or found > value + EPSILON else place
    return parameter.values.index(value) if value in parameter.values else None


def key(point: Mapping[str, Value]) -> tuple[tuple[str, Value], ...]:
    """Equal for equal points, whatever the order of their names."""
    return tuple(sorted(point.items()))


def size(parameters: Sequence[Parameter]) -> int | None:
    """How many points the space has. None: without end."""
    total = 1
    for parameter in parameters:
        found = _size(parameter)
        if found is None:
            return None
        total *= found
    return total


def point_at(parameters: Sequence[Parameter], index: int) -> Point:
    """A point of a finite space, by a number from 0 to below its size: each point has one number.

    The digits of the number are the values of the parameters; the base of a digit is the size of its parameter with
    what is active below it.
    """
    point: Point = {}
    for parameter in parameters:
        index, digit = divmod(index, _size(parameter) or 1)
        point |= _point_below(parameter, digit)
    return point


def _size(parameter: Parameter) -> int | None:
    total = parameter.count
    for points in _points_below(parameter).values():
        if total is None or points is None:
            return None
        total += points - 1
    return total


def _points_below(parameter: Parameter) -> dict[Value, int | None]:
    """The values that make other parameters active, in the order of the conditions, and how many points these have
    together. Each condition is counted once, however many values it has."""
    found: dict[Value, int | None] = {}
    for condition in parameter.conditions:
        points = _size(condition.parameter)
        for value in dict.fromkeys(condition.values):
            before = found.get(value, 1)
            found[value] = None if points is None or before is None else before * points
    return found


def _point_below(parameter: Parameter, index: int) -> Point:
    """The values of a parameter that switch others on come first, then the rest, which count for one point each."""
    switching = _points_below(parameter)
    for value, points in switching.items():
        if index < (points or 1):
            children = [each.parameter for each in parameter.conditions if each.holds(value)]
            return {parameter.name: value, **point_at(children, index)}
        index -= points or 1
    return {parameter.name: _rest_at(parameter, switching, index)}


def _rest_at(parameter: Parameter, switching: Mapping[Value, object], index: int) -> Value:
    """The value at this place among those that switch nothing on. An integer may have too many to list them."""
    if parameter.values:
        return [each for each in parameter.values if each not in switching][index]
    value = parameter.value_at(index)
    for each in sorted(switching):
        if not isinstance(value, str) and not isinstance(each, str) and each <= value:
            value += 1
    return value
