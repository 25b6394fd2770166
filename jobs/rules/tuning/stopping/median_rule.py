"""The median rule: "stops a pending trial if the trial's best objective_value is strictly below the median
'performance' of all completed trials reported up to the trial's last measurement. Currently, 'performance' refers to
the running average of the objective values reported by the trial in each measurement."

*Below* is of a metric to be maximized; a cost is above.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from jobs.rules.tuning.stopping.curves import Completed, Curve


def median_stops(curve: Curve, others: Sequence[Completed]) -> bool:
    known = (each.curve.until(curve.end) for each in others)
    averages = [each.average for each in known if each.costs]
    return bool(averages) and curve.best > median(averages)
