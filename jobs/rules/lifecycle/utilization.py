"""When a run counts as active, and for how long a run has been inactive."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

# Threads that only wake up to look for work use less than this many cores.
STILL_CORES = 0.05
# The times on a row may lag behind by this much.
REFRESH = timedelta(seconds=9)
# After so long without a sample, it is not known what the run did meanwhile.
BLIND_AFTER = timedelta(seconds=90)

Loads = Iterable[tuple[int | None, int | None]]


def are_gpus_busy(loads: Loads) -> bool:
    return any(percent for percent, _ in loads)


def is_busy(cores: float, loads: Loads) -> bool:
    return cores >= STILL_CORES or are_gpus_busy(loads)


def inactive_for(since: datetime | None, sampled_at: datetime | None, now: datetime) -> timedelta | None:
    """How long the run has been inactive since `since`. None where it is not sampled at the moment."""
    if since is None or sampled_at is None or now - sampled_at > BLIND_AFTER:
        return None
    return max(now - since, timedelta(0))
