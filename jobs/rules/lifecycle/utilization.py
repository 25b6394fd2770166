"""What counts as doing something, and for how long a run has done nothing."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

# Threads that only wake up to look whether there is something to do cost less than this many cores.
STILL_CORES = 0.05
# Times on the row may be older than the truth by this.
REFRESH = timedelta(seconds=9)
# So long without a sample, and nobody knows what the run did meanwhile.
BLIND_AFTER = timedelta(seconds=90)

Loads = Iterable[tuple[int | None, int | None]]


def are_gpus_busy(loads: Loads) -> bool:
    return any(percent for percent, _ in loads)


def is_busy(cores: float, loads: Loads) -> bool:
    return cores >= STILL_CORES or are_gpus_busy(loads)


def inactive_for(since: datetime | None, sampled_at: datetime | None, now: datetime) -> timedelta | None:
    """How long nothing was done since `since`. None where nobody looks at it at the moment."""
    if since is None or sampled_at is None or now - sampled_at > BLIND_AFTER:
        return None
    return max(now - since, timedelta(0))
