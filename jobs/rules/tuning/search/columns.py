"""Points as arrays: a row for each point, a column of codes (`scales.py`) for each parameter, NaN where it is inactive.

Candidates are drawn and changed as codes, so each of them is a point of the space, whatever its conditions are.
`encode` makes the columns that a model sees: a parameter's place on its scale; for CATEGORICAL one column for each
value, so that all values are equally far apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from jobs.rules.tuning.search.scales import Array, code_of, from_unit, random_codes, to_unit, value_of
from jobs.rules.tuning.space import Condition, Kind, Parameter, Point, Value

# Two points with different values in such columns are 1 apart.
_ONE_HOT = 0.5**0.5
# Where an inactive parameter lies.
_INACTIVE = 0.5


class Columns:
    """The parameters of a space, flat, each after its parent."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self.parameters: list[Parameter] = []
        # For each parameter the place of its parent, and the codes of the parent that make it active.
        self._parents: list[tuple[int, Array]] = []
        self._add(parameters, -1, ())
        widths = [len(each.values) if each.kind is Kind.CATEGORICAL else 1 for each in self.parameters]
        # The parameter of each encoded column.
        self.groups: NDArray[np.intp] = np.repeat(np.arange(len(widths)), widths)

    def _add(self, parameters: Sequence[Parameter], parent: int, conditions: Sequence[Condition]) -> None:
        for place, parameter in enumerate(parameters):
            codes = (
                [code_of(self.parameters[parent], each) for each in conditions[place].values]
                if conditions
                else []
            )
            self.parameters.append(parameter)
            self._parents.append((parent, np.array(codes, dtype=float)))
            own = len(self.parameters) - 1
            self._add([each.parameter for each in parameter.conditions], own, parameter.conditions)

    def codes(self, points: Sequence[Mapping[str, Value]]) -> Array:
        """The codes of points. A point of another space keeps what this one knows."""
        rows = [
            [code_of(each, point[each.name]) if each.name in point else np.nan for each in self.parameters]
            for point in points
        ]
        return self._inactive_out(np.array(rows, dtype=float).reshape(len(points), len(self.parameters)))

    def point(self, codes: Array) -> Point:
        return {
            parameter.name: value_of(parameter, code)
            for parameter, code in zip(self.parameters, codes.tolist(), strict=True)
            if code == code
        }

    def random(self, dice: Generator, count: int) -> Array:
        return self._inactive_out(self._random_everywhere(dice, count))

    def default(self, dice: Generator) -> Array:
        """One row with the default values, and random ones where there is no default."""
        codes = self._random_everywhere(dice, 1)
        for place, parameter in enumerate(self.parameters):
            if parameter.default is not None:
                codes[0, place] = code_of(parameter, parameter.default)
        row: Array = self._inactive_out(codes)[0]
        return row

    def changed(self, dice: Generator, codes: Array, step: float, share: float) -> Array:
        """Neighbours: each parameter of each row changes with the probability `share`, by about `step` of its range."""
        fresh = self._random_everywhere(dice, len(codes))
        moves = dice.standard_normal(codes.shape) * step
        chosen = dice.random(codes.shape) < share
        found = codes.copy()
        for place, parameter in enumerate(self.parameters):
            own = codes[:, place]
            new = fresh[:, place]
            if parameter.kind is not Kind.CATEGORICAL:
                near = from_unit(parameter, np.clip(to_unit(parameter, own) + moves[:, place], 0.0, 1.0))
                new = np.where(np.isnan(own), new, near)
            # What becomes active by a change above it needs a value too.
            found[:, place] = np.where(chosen[:, place] | np.isnan(own), new, own)
        return self._inactive_out(found)

    def encode(self, codes: Array) -> Array:
        return np.concatenate(list(self._encoded(codes)), axis=1)

    def _random_everywhere(self, dice: Generator, count: int) -> Array:
        """Random codes for all parameters, those that are inactive too."""
        units = dice.random((count, len(self.parameters)))
        return np.stack(
            [random_codes(each, units[:, place]) for place, each in enumerate(self.parameters)], axis=1
        )

    def _encoded(self, codes: Array) -> Iterator[Array]:
        for place, parameter in enumerate(self.parameters):
            column = codes[:, place : place + 1]
            if parameter.kind is Kind.CATEGORICAL:
                yield np.where(column == np.arange(len(parameter.values)), _ONE_HOT, 0.0)
            else:
                yield np.where(np.isnan(column), _INACTIVE, to_unit(parameter, column))

    def _inactive_out(self, codes: Array) -> Array:
        for place, (parent, allowed) in enumerate(self._parents):
            if parent >= 0:
                codes[~np.isin(codes[:, parent], allowed), place] = np.nan
        return codes
