"""Which replica of a job has been silent for conspicuously longer than the others: the first to be asked when all hang.

Replicas of one pool print at much the same pace. So whoever is silent for ten times as long as most, and for a minute
at least, is odd. Where most are silent none is: then the order by silence tells who was the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median_low

MIN_S = 60.0
TIMES = 10.0


def unusually_quiet(silent_s: Mapping[str, float]) -> frozenset[str]:
    """Of replicas that run, and for how long each has printed nothing."""
    if len(silent_s) < 2:
        return frozenset()
    bound = max(MIN_S, TIMES * median_low(silent_s.values()))
    return frozenset(name for name, seconds in silent_s.items() if seconds >= bound)
