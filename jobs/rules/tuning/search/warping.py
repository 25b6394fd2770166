"""Values as a model likes them: about one wide, less is better, and no diverged trial that flattens all others.

Values are centred on their median and scaled by the spread of the better half; what is worse than the median is
squashed by log1p. NaN and infinities count as the worst value that was seen. The map is monotone, so it has an inverse:
a prediction can be said in the metric's own units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from jobs.rules.tuning.search.scales import Array

_SQUASH = 0.7
# Numbers beyond this are as bad as this, so that no square or sum is infinite.
_HUGE = 1e100
# No scale is less, so that each number has a way back: log(2 * _HUGE / _TINY) is below the largest exponent.
_TINY = 1e-200
_LARGEST_EXPONENT = 700.0


@dataclass(frozen=True)
class Warp:
    """A map from the values of a metric to the numbers that the model learns from, and its inverse."""

    centre: float
    scale: float
    mean: float = 0.0
    deviation: float = 1.0
    worst: float = 0.0

    def apply(self, values: Array) -> Array:
        values = np.where(np.isfinite(values), np.clip(values, -_HUGE, _HUGE), self.worst)
        return (self._squashed(values) - self.mean) / self.deviation

    def invert(self, warped: float) -> float:
        value = warped * self.deviation + self.mean
        if value > 0:
            value = math.expm1(min(value / _SQUASH, _LARGEST_EXPONENT))
        return value * self.scale + self.centre

    def _squashed(self, values: Array) -> Array:
        units = (values - self.centre) / self.scale
        return np.where(units > 0, _SQUASH * np.log1p(np.maximum(units, 0.0)), units)


def warp_of(values: Array) -> Warp:
    """The warp that these values ask for. Values that are all equal, or none, are no difficulty."""
    finite = np.clip(values[np.isfinite(values)], -_HUGE, _HUGE)
    if not len(finite):
        return Warp(0.0, 1.0)
    centre = float(np.median(finite))
    better = finite[finite <= centre]
    scale = float(np.sqrt(np.mean((better - centre) ** 2))) or float(np.abs(finite - centre).max()) or 1.0
    scale = max(scale, abs(centre) * 1e-12, _TINY)
    rough = Warp(centre, scale, worst=float(finite.max()))
    seen = rough.apply(values)
    return Warp(centre, scale, float(seen.mean()), max(float(seen.std()), 1e-9), rough.worst)
