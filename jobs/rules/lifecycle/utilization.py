"""When a run counts as active, for how long it has been inactive, and the use of all its GPUs as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

# Threads that only wake up to look for work use less than this many cores.
STILL_CORES = 0.05
# The times on a row may lag behind by this much.
REFRESH = timedelta(seconds=9)
# After so long without a sample, it is not known what the run did meanwhile.
BLIND_AFTER = timedelta(seconds=90)

Loads = Iterable[tuple[int | None, int | None]]


Known = float | int | None


class AllGpus(NamedTuple):
    """The GPUs of one run as one: their memory and power are sums, their temperature is the highest."""

    load: float | None
    memory_mb: int | None
    watts: int | None
    celsius: int | None


def of_all_gpus(
    gpus: Sequence[Sequence[Known]], watts: Sequence[Known] | None, degrees: Sequence[Known] | None
) -> AllGpus:
    """`gpus`: percent and MiB of each GPU. What is not reported is left out."""
    percents = [gpu[0] for gpu in gpus if gpu[0] is not None]
    memory = [gpu[1] for gpu in gpus if gpu[1] is not None]
    power = [value for value in watts or () if value is not None]
    heat = [value for value in degrees or () if value is not None]
    return AllGpus(
        sum(percents) / len(percents) if percents else None,
        round(sum(memory)) if memory else None,
        round(sum(power)) if power else None,
        round(max(heat)) if heat else None,
    )


def are_gpus_busy(loads: Loads) -> bool:
    return any(percent for percent, _ in loads)


def is_busy(cores: float, loads: Loads) -> bool:
    return cores >= STILL_CORES or are_gpus_busy(loads)


def inactive_for(since: datetime | None, sampled_at: datetime | None, now: datetime) -> timedelta | None:
    """How long the run has been inactive since `since`. None where it is not sampled at the moment."""
    if since is None or sampled_at is None or now - sampled_at > BLIND_AFTER:
        return None
    return max(now - since, timedelta(0))
