"""A Gaussian process on the unit cube: Matérn 5/2, a length scale for each parameter, noise learnt.

The signal's variance is profiled out: for given lengths and noise the best one has a formula. Lengths and noise are
drawn from their posterior by slice sampling (Neal 2003), a random walk that needs no step size: with few trials one
best estimate is often wrong, and an average over some samples says how little is known.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from jobs.rules.tuning.search.scales import Array

Groups = NDArray[np.intp]
# Priors of the logarithms, as mean and deviation. The mean of lengths grows with the number of parameters: in a cube
# of many dimensions all distances are large.
_LENGTH_DEVIATION = 1.2
_NOISE_MEAN, _NOISE_DEVIATION = -7.0, 2.0
_FIRST_LENGTH, _FIRST_NOISE = math.log(0.5), -5.0
# Of more points the lengths and the noise are learnt from a part: the time of a sample grows with the cube.
MAX_LEARNT_FROM = 120
SWEEPS, SAMPLES = 4, 3
KEPT_ANSWERS = 4
# What a believer adds to the diagonal: two running trials may have the same parameters.
_JITTER = 1e-8
# A density below all others.
_IMPOSSIBLE = -math.inf


@dataclass(frozen=True, eq=False)
class Scales:
    """A sample of what makes a process besides its points: a length for each column, inverted, and the noise."""

    inverse_lengths: Array
    noise: float


@dataclass(frozen=True, eq=False)
class Process:
    """The process for one sample of lengths and noise, given points `x` and their values."""

    scales: Scales
    variance: float
    x: Array
    weights: Array
    inverse_root: Array

    def mean(self, x: Array) -> Array:
        return np.asarray(self._near(x, self.x) @ self.weights)

    def mean_and_deviation(self, x: Array) -> tuple[Array, Array]:
        near = self._near(x, self.x)
        known = near @ self.inverse_root.T
        left = np.maximum(1e-9, 1.0 - (known * known).sum(axis=1))
        return near @ self.weights, np.sqrt(left * self.variance)

    def covariance(self, x: Array) -> Array:
        """Of the values at these points, given what is known."""
        known = self._near(x, self.x) @ self.inverse_root.T
        return np.asarray((self._near(x, x) - known @ known.T) * self.variance)

    def _near(self, one: Array, other: Array) -> Array:
        return _matern(_distances(one, other, self.scales.inverse_lengths))


def learn(x: Array, values: Array, groups: Groups, seed: int, samples: int = SAMPLES) -> Sequence[Process]:
    """The process for some samples of its lengths and noise. `groups`: the parameter of each column."""
    return [given(x, values, each) for each in learn_scales(x, values, groups, seed, samples)]


def learn_scales(
    x: Array, values: Array, groups: Groups, seed: int, samples: int = SAMPLES
) -> Sequence[Scales]:
    """Some samples of the lengths and the noise.

    The answer follows from the arguments, and the last few answers are kept: several trials are drawn with what is
    learnt from the same results, and this takes most of the time of a suggestion.
    """
    digest = hashlib.blake2b(digest_size=16)
    for array in (x, values, groups):
        digest.update(f"{array.shape} {array.dtype}".encode())
        digest.update(array.tobytes())
    return _learnt(_Question(digest.digest(), seed, samples, x, values, groups))


@dataclass(frozen=True)
class _Question:
    """What is learnt from. Two with the same digest are the same."""

    digest: bytes
    seed: int
    samples: int
    x: Array = field(compare=False)
    values: Array = field(compare=False)
    groups: Groups = field(compare=False)


@lru_cache(KEPT_ANSWERS)
def _learnt(question: _Question) -> tuple[Scales, ...]:
    x, values, groups = question.x, question.values, question.groups
    dice = Generator(PCG64(question.seed))
    chosen = dice.permutation(len(values))[:MAX_LEARNT_FROM]
    density = _posterior(x[chosen], values[chosen], groups)
    count = int(groups[-1]) + 1
    sample = np.r_[np.full(count, _FIRST_LENGTH), _FIRST_NOISE]
    sample, height = _swept(density, sample, density(sample), dice, SWEEPS)
    found = []
    for _ in range(question.samples):
        sample, height = _swept(density, sample, height, dice, 1)
        found.append(Scales(np.exp(-sample[:-1])[groups], math.exp(sample[-1])))
    return tuple(found)


def given(x: Array, values: Array, scales: Scales) -> Process:
    """The process for these lengths and this noise."""
    kernel = _matern(_distances(x, x, scales.inverse_lengths))
    kernel[np.diag_indices(len(values))] += scales.noise + _JITTER
    inverse_root = np.linalg.inv(np.linalg.cholesky(kernel))
    whitened = inverse_root @ values
    variance = float(whitened @ whitened + 1.0) / (len(values) + 1.0)
    return Process(scales, variance, x, inverse_root.T @ whitened, inverse_root)


def believing(process: Process, values: Array, x: Array) -> Process:
    """The process as if points without a value had the value that it expects: so the next point lies elsewhere."""
    if not len(x):
        return process
    values = np.r_[values, process.mean(x)]
    found = given(np.concatenate([process.x, x]), values, process.scales)
    # What is believed is no evidence of how much values vary.
    return replace(found, variance=process.variance)


def _distances(one: Array, other: Array, inverse_lengths: Array) -> Array:
    """Squared, in lengths."""
    a, b = one * inverse_lengths, other * inverse_lengths
    squares: Array = a @ b.T
    squares *= -2.0
    squares += (a * a).sum(axis=1)[:, None]
    squares += (b * b).sum(axis=1)
    return np.maximum(squares, 0.0, out=squares)


def _matern(squares: Array) -> Array:
    """It writes over the squares: a table of its own for each step would take a third of the time of a suggestion."""
    squares *= 5.0
    far = np.sqrt(squares)
    squares /= 3.0
    squares += far
    squares += 1.0
    squares *= np.exp(np.negative(far, out=far), out=far)
    return squares


def _posterior(x: Array, values: Array, groups: Groups) -> Callable[[Array], float]:
    """The logarithm of the posterior density of log lengths and log noise, up to a constant."""
    size, count = len(values), int(groups[-1]) + 1
    # A root is computed from what lies below the diagonal.
    pairs = np.tril_indices(size, -1)
    apart = np.stack([_apart(x[:, groups == group])[pairs] for group in range(count)])
    places = np.ravel_multi_index(pairs, (size + 1, size + 1))
    diagonal = np.diag_indices(size)
    mean = math.log(0.5 * math.sqrt(count) + 0.2)
    length = float(values @ values)

    def density(sample: Array) -> float:
        noise = math.exp(sample[-1])
        kernel = np.zeros((size + 1, size + 1))
        kernel.reshape(-1)[places] = _matern(np.exp(-2.0 * sample[:-1]) @ apart)
        kernel[diagonal] = 1.0 + noise
        # With the values as one more row, the last row of the root is the root's inverse times the values.
        kernel[size, :size] = values
        kernel[size, size] = 1.0 + 2.0 * length / noise
        try:
            root = np.linalg.cholesky(kernel)
        except np.linalg.LinAlgError:
            return _IMPOSSIBLE
        whitened = root[size, :size]
        variance = float(whitened @ whitened + 1.0) / (size + 1.0)
        likelihood = -0.5 * size * math.log(variance) - float(np.log(root.diagonal()[:size]).sum())
        prior = (((sample[:-1] - mean) / _LENGTH_DEVIATION) ** 2).sum()
        return likelihood - 0.5 * float(prior + ((sample[-1] - _NOISE_MEAN) / _NOISE_DEVIATION) ** 2)

    return density


def _apart(x: Array) -> Array:
    """Squared distances. A category has a thousand columns: a cube of all their differences would take 115 MB."""
    return (x - x.T) ** 2 if x.shape[1] == 1 else _distances(x, x, np.ones(x.shape[1]))


def _swept(
    density: Callable[[Array], float], sample: Array, height: float, dice: Generator, sweeps: int
) -> tuple[Array, float]:
    """Each coordinate is drawn anew in turn, so many times."""
    for _ in range(sweeps):
        for place in dice.permutation(len(sample)):
            sample, height = _slice(density, sample, height, int(place), dice)
    return sample, height


def _slice(
    density: Callable[[Array], float], sample: Array, height: float, place: int, dice: Generator
) -> tuple[Array, float]:
    """One coordinate, drawn from where the density is above a random level below its height here."""
    level = height + math.log(max(dice.random(), 1e-300))

    def at(value: float) -> tuple[Array, float]:
        moved = sample.copy()
        moved[place] = value
        return moved, density(moved)

    low = float(sample[place]) - float(dice.random())
    high = low + 1.0
    for _ in range(4):
        if at(low)[1] < level:
            break
        low -= 1.0
    for _ in range(4):
        if at(high)[1] < level:
            break
        high += 1.0
    for _ in range(12):
        value = low + float(dice.random()) * (high - low)
        moved, found = at(value)
        if found > level:
            return moved, found
        if value < sample[place]:
            low = value
        else:
            high = value
    return sample, height
