"""Which trials are stopped early.

Whatever the rule, three things protect a trial: it is not stopped before it has `min_measurements` measurements (5,
unless a convex rule says another number), nor before more trials than this number have completed, nor while its best
value is as good as the best of theirs. Measurements of NaN or infinity are left out. Times are compared with times, and
steps with steps (`use_elapsed`).
"""

from __future__ import annotations

from collections.abc import Sequence

from jobs.rules.tuning.stopping.convex_rule import convex_stops
from jobs.rules.tuning.stopping.curves import Completed, Curve, completed, curve_of
from jobs.rules.tuning.stopping.decay_curve_rule import decay_curve_stops
from jobs.rules.tuning.stopping.median_rule import median_stops
from jobs.rules.tuning.study import EarlyStopping, Metric, Rule
from jobs.rules.tuning.trials import Trial


def stops(trial: Trial, others: Sequence[Trial], metric: Metric, early: EarlyStopping) -> bool:
    """Whether a running trial is to be stopped now, compared with the trials of its study."""
    known = completed(others, metric, early.use_elapsed)
    return stops_curve(curve_of(trial, metric, early.use_elapsed), known, early)


def stops_curve(curve: Curve, known: Sequence[Completed], early: EarlyStopping) -> bool:
    """The same for what it has measured until now."""
    if len(curve.at) < early.min_measurements or len(known) <= early.min_measurements:
        return False
    if curve.best <= min(each.final for each in known):
        return False
    return _stopped_by(early, curve, known)


def _stopped_by(early: EarlyStopping, curve: Curve, known: Sequence[Completed]) -> bool:
    if early.rule is Rule.MEDIAN:
        return median_stops(curve, known)
    if early.rule is Rule.CONVEX:
        return convex_stops(curve, known, early)
    return decay_curve_stops(curve, known)
