"""The decay curve rule: "builds a Gaussian Process Regressor to predict the final objective value of a trial based on
the already completed trials and the intermediate measurements of the current trial. Early stopping is requested for the
current trial if there is very low probability to exceed the optimal value found so far."

What the process sees of a trial: its cost now, and how much it became better in the last half of its way. What it
predicts: how much better the final cost is than that of now. Very low is 5 %.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jobs.rules.tuning.search.acquisition import normal_below
from jobs.rules.tuning.search.gaussian_process import learn
from jobs.rules.tuning.search.scales import Array
from jobs.rules.tuning.stopping.curves import Completed, Curve

VERY_LOW = 0.05
# With fewer finished curves the process knows too little.
MIN_CURVES = 6
# The same curves give the same answer.
_SEED = 1


def decay_curve_stops(curve: Curve, others: Sequence[Completed]) -> bool:
    chance = chance_of_best(curve, others)
    return chance is not None and chance < VERY_LOW


def chance_of_best(curve: Curve, others: Sequence[Completed]) -> float | None:
    """The probability that the trial ends with less cost than every other. None: too little is known."""
    known = [each for each in others if each.curve.at[0] <= curve.end]
    if len(known) < MIN_CURVES:
        return None
    seen = np.array([_features(each.curve, curve.end) for each in known])
    gains = np.array([each.final - now for each, (now, _) in zip(known, seen.tolist(), strict=True)])
    own = np.array([_features(curve, curve.end)])
    middle, width = seen.mean(axis=0), np.maximum(seen.std(axis=0), 1e-300)
    level, spread = float(gains.mean()), max(float(gains.std()), 1e-12 * float(np.abs(seen).max()), 1e-300)
    best = min(each.final for each in others)
    wanted = (best - float(own[0, 0]) - level) / spread
    return _probability((seen - middle) / width, (gains - level) / spread, (own - middle) / width, wanted)


def _probability(x: Array, values: Array, own: Array, wanted: float) -> float:
    """That the value at `own` is below `wanted`, as the mean over the samples of the process."""
    chances = []
    for process in learn(x, values, np.arange(x.shape[1]), _SEED):
        mean, deviation = process.mean_and_deviation(np.clip(own, -10.0, 10.0))
        # The final cost that will be measured has the noise too.
        total = np.sqrt(deviation**2 + process.scales.noise * process.variance)
        chances.append(float(normal_below((wanted - mean) / total)[0]))
    return float(np.mean(chances))


def _features(curve: Curve, at: float) -> tuple[float, float]:
    """The cost at this place, and how much less it is than at half the way there."""
    now = curve.until(at).costs[-1]
    before = curve.until(at / 2).costs or curve.costs[:1]
    return now, now - before[-1]
