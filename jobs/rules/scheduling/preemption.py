"""Which SPOT jobs make room for a blocked job: as few as possible, and those that lose the least work.

No job is stopped in vain: if stopping SPOT jobs would not let the blocked job start, none is stopped. A job that is
being stopped already counts as capacity that will come, so that one blocked job never has two sets of victims.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jobs.rules.scheduling.free_capacity import CapacityIndex
from jobs.rules.scheduling.future_capacity import FutureCapacity
from jobs.rules.scheduling.resource_requests import JobRequest
from jobs.rules.scheduling.running_jobs import RunningJob


def choose_victims(
    capacity: CapacityIndex,
    spots: Sequence[RunningJob],
    stopping: Sequence[RunningJob],
    request: JobRequest,
    location: str,
    now: float,
    ends: float,
) -> tuple[RunningJob, ...]:
    """Which SPOT jobs to stop for a job that may run until `ends`; none if that would not help, or is not needed."""
    future = FutureCapacity(capacity, request, location, ends)
    for each in stopping:
        future.change(each.claims, until=each.ends)
    if future.enough():
        return ()
    candidates = [each for each in spots if any(future.knows(claim.host) for claim in each.claims)]
    young = sorted(candidates, key=lambda each: (-each.since, -each.job))
    chosen = _fewest(future, young, now)
    if len(chosen) < 2:
        return chosen
    for each in chosen:
        future.change(each.claims, -1, until=each.ends)
    large = sorted(candidates, key=lambda each: (-each.gpus, -each.since, -each.job))
    found = [chosen, _fewest(future, large, now)]
    return min(found, key=lambda chosen: (len(chosen), _lost(chosen, now)))


def _fewest(future: FutureCapacity, order: Sequence[RunningJob], now: float) -> tuple[RunningJob, ...]:
    """Choose one job after the other until the blocked job fits; then spare those that are not needed after all, those
    that would lose the most first.

    Afterwards `future` counts what the chosen jobs hold as free.
    """
    chosen: list[RunningJob] = []
    for each in order:
        if future.enough():
            break
        future.change(each.claims, until=each.ends)
        chosen.append(each)
    if future.enough():
        for each in sorted(chosen, key=_dearest(now), reverse=True):
            future.change(each.claims, -1, until=each.ends)
            if future.enough():
                chosen.remove(each)
            else:
                future.change(each.claims, until=each.ends)
        return tuple(chosen)
    return ()


def _dearest(now: float) -> Callable[[RunningJob], Any]:
    return lambda each: (_lost([each], now), each.job)


def _lost(chosen: Sequence[RunningJob], now: float) -> float:
    """The work that is lost, in GPU-seconds (in seconds where a job has no GPUs)."""
    return sum(max(now - each.since, 0.0) * max(each.gpus, 1) for each in chosen)
