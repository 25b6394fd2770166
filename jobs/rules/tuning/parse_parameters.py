"""Read the parameters of a StudySpec: every bound, value, scale, default and condition is checked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise

from agents.infra.texts import said
from jobs.rules.spec.json_fields import MessageReader, shown
from jobs.rules.tuning.space import (
    EPSILON,
    Condition,
    Kind,
    Parameter,
    Scale,
    Value,
    flat,
    own_value,
)
from jobs.rules.tuning.study import PARENT_VALUES, SCALES

MAX_PARAMETERS = 100
MAX_VALUES = 1_000
# In all parameters together. A model sees a category as a column of numbers.
MAX_CATEGORIES = 2_000
# In all conditions together.
MAX_PARENT_VALUES = 2_000
MAX_DEPTH = 8
MAX_NAME = 128
# Parameters of trials are JSON numbers: up to here each integer is one.
MAX_INTEGER = 2**53
_VALUE_SPECS = {kind: f"{kind.lower()}_value_spec" for kind in Kind}


def read_parameters(fields: MessageReader, name: str = "parameters") -> tuple[Parameter, ...]:
    messages = fields.messages(name, maximum=MAX_PARAMETERS)
    if not messages and not fields.complained(name):
        fields.complain(name, said("is required: what the trials try out, at least one parameter."))
    parameters = tuple(_parameter(message, 1) for message in messages)
    for problem in _too_many(parameters):
        fields.complain(name, problem)
    for both in sorted(set(_twice(_names(each) for each in parameters))):
        fields.complain(
            name,
            said(
                "has two parameters {name} that can be active together. Give each a name of its own.",
                name=shown(both),
            ),
        )
    return parameters


def _too_many(parameters: Sequence[Parameter]) -> Iterator[str]:
    """What a study has too much of: each suggestion and each look at the study goes through all of it."""
    every = list(flat(parameters))
    if len(every) > MAX_PARAMETERS:
        yield said("has more than {most} parameters, with those of conditions.", most=MAX_PARAMETERS)
    if sum(len(each.values) for each in every if each.kind is Kind.CATEGORICAL) > MAX_CATEGORIES:
        yield said(
            "has more than {most} categorical values in all parameters together. Give fewer values, or make "
            "numbers of them.",
            most=MAX_CATEGORIES,
        )
    if sum(len(condition.values) for each in every for condition in each.conditions) > MAX_PARENT_VALUES:
        yield said("has more than {most} values in all conditions together.", most=MAX_PARENT_VALUES)


def _twice(sets: Iterable[set[str]]) -> Iterator[str]:
    """The names that are in two of the sets."""
    seen: set[str] = set()
    for names in sets:
        yield from seen & names
        seen |= names


def _parameter(fields: MessageReader, depth: int) -> Parameter:
    name = read_name(fields, "parameter_id")
    if "=" in name:
        fields.complain("parameter_id", said("must not hold =: the argument of the program is --name=value."))
    kind = _kind(fields)
    scale = Scale(_named_scale(fields.choice("scale_type", SCALES)))
    parameter = _read_values(fields, name, kind, scale)
    _check_scale(fields, parameter)
    conditions = _conditions(fields, parameter, depth)
    fields.close()
    return Parameter(
        name,
        kind,
        parameter.low,
        parameter.high,
        parameter.values,
        parameter.scale,
        parameter.default,
        conditions,
    )


def read_name(fields: MessageReader, field: str) -> str:
    """A parameterId or metricId."""
    name = fields.text(field, maximum=MAX_NAME)
    if not name and not fields.complained(field):
        fields.complain(field, said("is required."))
    if any(letter.isspace() for letter in name):
        fields.complain(field, said("must not contain whitespace."))
    return name


def _named_scale(name: str) -> str:
    return Scale.LINEAR if name == SCALES[0] else name


def _kind(fields: MessageReader) -> Kind:
    given = [kind for kind in Kind if fields.has(_VALUE_SPECS[kind])]
    if len(given) != 1:
        fields.complain(
            "parameter_value_spec",
            said(
                "is required: exactly one of doubleValueSpec, integerValueSpec, categoricalValueSpec and "
                "discreteValueSpec."
            ),
        )
        fields.ignore(*(_VALUE_SPECS[kind] for kind in given[1:]))
    return given[0] if given else Kind.DOUBLE


def _read_values(fields: MessageReader, name: str, kind: Kind, scale: Scale) -> Parameter:
    spec = fields.message(_VALUE_SPECS[kind])
    parameter = _bounds(spec, name, kind, scale) if kind in _BOUNDED else _listed(spec, name, kind, scale)
    default = _default(spec, kind)
    if default is not None:
        own = own_value(parameter, default)
        if own is None:
            spec.complain("default_value", said("must be one of the values of the parameter."))
        parameter = replace(parameter, default=own)
    spec.close()
    return parameter


_BOUNDED = (Kind.DOUBLE, Kind.INTEGER)


def _default(spec: MessageReader, kind: Kind) -> Value | None:
    if not spec.has("default_value"):
        spec.ignore("default_value")
        return None
    if kind is Kind.CATEGORICAL:
        return spec.text("default_value", printable=False)
    if kind is Kind.INTEGER:
        return spec.whole("default_value", default=0, minimum=-MAX_INTEGER, maximum=MAX_INTEGER)
    return spec.number("default_value")


def _bounds(spec: MessageReader, name: str, kind: Kind, scale: Scale) -> Parameter:
    low: float
    high: float
    if kind is Kind.INTEGER:
        low = spec.whole("min_value", default=0, minimum=-MAX_INTEGER, maximum=MAX_INTEGER)
        high = spec.whole("max_value", default=0, minimum=-MAX_INTEGER, maximum=MAX_INTEGER)
    else:
        low, high = spec.number("min_value", 0.0) or 0.0, spec.number("max_value", 0.0) or 0.0
    if not spec.complained("min_value") and not spec.complained("max_value"):
        if high < low:
            spec.complain("max_value", said("must not be below minValue, which is {low}.", low=shown(low)))
            high = low
        elif high - low == float("inf"):
            spec.complain(
                "max_value", said("is too far from minValue: their difference is larger than any number.")
            )
    return Parameter(name, kind, low, max(low, high), (), scale)


def _listed(spec: MessageReader, name: str, kind: Kind, scale: Scale) -> Parameter:
    values: tuple[Value, ...]
    if kind is Kind.CATEGORICAL:
        values = spec.texts("values", maximum=MAX_VALUES)
        if len(set(values)) < len(values):
            spec.complain("values", said("must not repeat a value."))
    else:
        numbers = spec.numbers("values", maximum=MAX_VALUES)
        if any(after - before < EPSILON for before, after in pairwise(numbers)):
            spec.complain(
                "values", said("must be in increasing order, each at least 1e-10 above the one before.")
            )
        values = numbers
    if not values and not spec.complained("values"):
        spec.complain("values", said("is required: at least one value."))
    return Parameter(name, kind, 0.0, 0.0, tuple(dict.fromkeys(values)), scale)


def _check_scale(fields: MessageReader, parameter: Parameter) -> None:
    if parameter.scale is Scale.LINEAR:
        return
    if parameter.kind is Kind.CATEGORICAL:
        fields.complain("scale_type", said("must be left unset for categorical values: they have no order."))
    lowest = parameter.values[0] if parameter.values else parameter.low
    if isinstance(lowest, int | float) and lowest <= 0:
        fields.complain(
            "scale_type",
            said(
                "{scale} needs values above 0, and the lowest is {low}. Raise it, or use UNIT_LINEAR_SCALE.",
                scale=str(parameter.scale),
                low=shown(lowest),
            ),
        )


def _conditions(fields: MessageReader, parent: Parameter, depth: int) -> tuple[Condition, ...]:
    name = "conditional_parameter_specs"
    messages = fields.messages(name, maximum=MAX_PARAMETERS)
    if messages and depth >= MAX_DEPTH:
        fields.complain(name, said("is nested too deep: at most {most} levels.", most=MAX_DEPTH))
        return ()
    conditions = tuple(_condition(message, parent, depth) for message in messages)
    if len(list(flat([each.parameter for each in conditions]))) > MAX_PARAMETERS:
        return conditions  # the whole study is refused, and to compare all of them would take long
    for condition in conditions:
        if parent.name and parent.name in _names(condition.parameter):
            fields.complain(
                name,
                said("has a parameter {name} below the one of this name.", name=shown(parent.name)),
            )
    for both in sorted(set(_clashes(conditions))):
        fields.complain(
            name,
            said(
                "has two parameters {name} that can be active together. Make their conditions disjoint.",
                name=shown(both),
            ),
        )
    return conditions


def _condition(fields: MessageReader, parent: Parameter, depth: int) -> Condition:
    given = [kind for kind, name in PARENT_VALUES.items() if fields.has(name)]
    if given != [parent.kind]:
        name = PARENT_VALUES.get(parent.kind)
        fields.complain(
            "parent_value_condition",
            said("must be {field}, and nothing else: the parent is {kind}.", field=name, kind=parent.kind)
            if name
            else said("is not possible below a DOUBLE: its parent must be INTEGER, CATEGORICAL or DISCRETE."),
        )
        fields.ignore(*PARENT_VALUES.values())
        values: tuple[Value, ...] = ()
    else:
        values = _parent_values(fields, parent)
    parameter = _parameter(fields.message("parameter_spec"), depth + 1)
    fields.close()
    return Condition(values, parameter)


def _parent_values(condition: MessageReader, parent: Parameter) -> tuple[Value, ...]:
    fields = condition.message(PARENT_VALUES[parent.kind])
    values = _values_of_kind(fields, parent.kind)
    if not values and not fields.complained("values"):
        fields.complain("values", said("is required: at least one value of the parent."))
    own = _own_values(parent, values)
    for index, (value, found) in enumerate(zip(values, own, strict=True)):
        if found is None:
            fields.complain(
                f"values[{index}]",
                said("{value} is not a value of {parent}.", value=shown(value), parent=shown(parent.name)),
            )
    fields.close()
    return tuple(each for each in own if each is not None)


def _own_values(parent: Parameter, values: Sequence[Value]) -> list[Value | None]:
    """For each value the parent's own that it is the same as, or None."""
    if parent.kind is not Kind.CATEGORICAL:
        return [own_value(parent, value) for value in values]
    known = set(parent.values)
    return [value if value in known else None for value in values]


def _values_of_kind(fields: MessageReader, kind: Kind) -> tuple[Value, ...]:
    if kind is Kind.CATEGORICAL:
        return fields.texts("values", maximum=MAX_VALUES)
    if kind is Kind.INTEGER:
        return fields.wholes("values", maximum=MAX_VALUES)
    return fields.numbers("values", maximum=MAX_VALUES)


def _names(parameter: Parameter) -> set[str]:
    return {each.name for each in flat([parameter])} - {""}


def _clashes(conditions: Sequence[Condition]) -> Iterator[str]:
    """The names that two conditions make active for one value of the parent."""
    active: dict[Value, list[set[str]]] = defaultdict(list)
    for condition in conditions:
        names = _names(condition.parameter)
        for value in set(condition.values):
            active[value].append(names)
    return chain.from_iterable(_twice(sets) for sets in active.values())
