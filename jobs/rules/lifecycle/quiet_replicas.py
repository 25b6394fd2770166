"""Which replicas of a job have been quiet for much longer than the others: the first to look at when the job hangs.

Replicas of one pool print at much the same pace. So a replica that has been quiet ten times as long as most others, and
for at least a minute, is unusual. Where most are quiet, none is unusual: sort them by their last output to see which
became quiet first.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median_low

MIN_S = 60.0
TIMES = 10.0


def unusually_quiet(silent_s: Mapping[str, float]) -> frozenset[str]:
    """The unusually quiet ones. `silent_s`: for each running replica, how long it has printed nothing."""
    if len(silent_s) < 2:
        return frozenset()
    bound = max(MIN_S, TIMES * median_low(silent_s.values()))
    return frozenset(name for name, seconds in silent_s.items() if seconds >= bound)
