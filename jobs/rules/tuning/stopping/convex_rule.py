"""The convex rule: "the policy first computes an overestimate of the objective value at max_num_steps according to the
slope of the incomplete objective value curve. No prediction can be made if the curve is completely flat. If the
overestimation is worse than the best objective value of the completed trials, this pending trial will be
early-stopped."

The slope is that of a straight line through the newest half of the curve: a curve of training becomes flatter, so a
line promises more than will come. Nothing is added to the measurements of a trial that is stopped: a predicted value is
no measurement. So `learningRateParameterName` and `updateAllStoppedTrials`, which are about it, change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from statistics import fmean

from jobs.rules.tuning.stopping.curves import Completed, Curve
from jobs.rules.tuning.study import EarlyStopping

# Where the study does not say how many steps a trial has, so much of them must be over.
_DEFAULT_LEAST = 0.1


def convex_stops(curve: Curve, others: Sequence[Completed], early: EarlyStopping) -> bool:
    last = early.max_steps or max(each.curve.end for each in others)
    least = early.min_steps or _DEFAULT_LEAST * last
    if not least < curve.end < last:
        return False
    newest = max(early.min_measurements, ceil(len(curve.at) / 2))
    promised = overestimate(Curve(curve.at[-newest:], curve.costs[-newest:]), last, curve.best)
    return promised is not None and promised > min(each.final for each in others)


def overestimate(newest: Curve, last: float, best: float) -> float | None:
    """The least cost to hope for at the end; None for a flat curve. It is no higher than the best one until now."""
    if max(newest.costs) == min(newest.costs):
        return None
    middle, mean = fmean(newest.at), fmean(newest.costs)
    width = sum((at - middle) ** 2 for at in newest.at)
    if width == 0:
        return None
    slope = sum((at - middle) * each for at, each in zip(newest.at, newest.costs, strict=True)) / width
    return min(best, mean + slope * (last - middle))
