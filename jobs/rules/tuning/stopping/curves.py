"""The curve of a trial: what it measured by when, as the rules that stop trials early see it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import fmean

from jobs.rules.tuning.study import Metric
from jobs.rules.tuning.trials import Trial, cost

# So that no sum of costs is infinite.
_HUGE = 1e100


@dataclass(frozen=True, slots=True)
class Curve:
    """Points in the order of `at`, which is a step or the seconds since the trial's start. Less is better. Measurements
    of NaN or infinity are left out. `averages`: of all costs up to each point, where more were measured than are here;
    else empty."""

    at: tuple[float, ...]
    costs: tuple[float, ...]
    averages: tuple[float, ...] = ()

    def until(self, at: float) -> Curve:
        """What was known when the trial had come so far."""
        count = len(list(takewhile(lambda each: each <= at, self.at)))
        return Curve(self.at[:count], self.costs[:count], self.averages[:count])

    @property
    def end(self) -> float:
        return self.at[-1]

    @property
    def best(self) -> float:
        return min(self.costs)

    @property
    def average(self) -> float:
        return self.averages[-1] if self.averages else fmean(self.costs)


@dataclass(frozen=True, slots=True)
class Completed:
    """A trial that ran to its end, and its final cost."""

    curve: Curve
    final: float


def curve_of(trial: Trial, metric: Metric, use_elapsed: bool) -> Curve:
    found = []
    for measurement in trial.measurements:
        value = cost(metric, measurement.metrics.get(metric.name, math.nan))
        if math.isfinite(value):
            at = measurement.elapsed_s if use_elapsed else float(measurement.step)
            found.append((at, clipped(value), measurement.average))
    found.sort(key=lambda point: point[0])
    averages = tuple(cost(metric, average) for *_, average in found if average is not None)
    return Curve(
        tuple(at for at, *_ in found),
        tuple(value for _, value, _ in found),
        averages if len(averages) == len(found) else (),
    )


def completed(trials: Sequence[Trial], metric: Metric, use_elapsed: bool) -> list[Completed]:
    """The trials that a running one is compared with. One that was stopped early had no chance to become better."""
    found = []
    for trial in trials:
        final = cost(metric, trial.value(metric.name))
        curve = curve_of(trial, metric, use_elapsed)
        if trial.measured and not trial.stopped_early and curve.at and math.isfinite(final):
            found.append(Completed(curve, clipped(final)))
    return found


def clipped(value: float) -> float:
    return max(-_HUGE, min(_HUGE, value))
