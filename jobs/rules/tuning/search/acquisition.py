"""How much a point promises: the logarithm of the improvement that a process expects there."""

from __future__ import annotations

import math

import numpy as np

from jobs.rules.tuning.search.scales import Array

_ROOT_2PI = math.sqrt(2.0 * math.pi)
# Below this many deviations a difference of nearly equal numbers would be left; a continued fraction is exact there.
_TAIL = -2.0
_LEVELS = 16


def log_expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """Of values of which less is better, below `best`. Its logarithm still tells hopeless points apart."""
    below = (best - mean) / deviation
    return np.log(deviation) + np.where(below > _TAIL, _log_near(below), _log_tail(below))


def log_chance(mean: Array, deviation: Array, limit: float) -> Array:
    """The logarithm of the probability of a value below `limit`."""
    z = (limit - mean) / deviation
    near = np.log(np.maximum(normal_below(z), 1e-300))
    tail = -0.5 * z * z - math.log(_ROOT_2PI) + np.log(_mills(np.maximum(-z, 1.0)))
    return np.where(z > _TAIL, near, tail)


def normal_below(z: Array) -> Array:
    """The normal distribution function (Abramowitz and Stegun 26.2.17; wrong by less than 1e-7)."""
    t = 1.0 / (1.0 + 0.2316419 * np.abs(z))
    series = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    above = np.exp(-0.5 * z * z) / _ROOT_2PI * series
    return np.where(z > 0, 1.0 - above, above)


def _log_near(below: Array) -> Array:
    below = np.maximum(below, _TAIL)
    density = np.exp(-0.5 * below * below) / _ROOT_2PI
    return np.asarray(np.log(np.maximum(density + below * normal_below(below), 1e-300)))


def _log_tail(below: Array) -> Array:
    far = np.maximum(-below, 1.0)
    left = np.maximum(1.0 - far * _mills(far), 0.1 / (far * far))
    return np.asarray(-0.5 * far * far - math.log(_ROOT_2PI) + np.log(left))


def _mills(far: Array) -> Array:
    """The probability beyond `far` deviations over the density there, as a continued fraction."""
    below = far.copy()
    for level in range(_LEVELS, 0, -1):
        below = far + level / below
    return np.asarray(1.0 / below)
