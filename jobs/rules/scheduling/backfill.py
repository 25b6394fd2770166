"""The reservation of a blocked job: when it can start at the latest, and on which hosts.

Every job ends when its timeout is over, at the latest. So running jobs are taken away in that order until the blocked
job fits. A job behind it may use what is free now only if it ends before that moment, or leaves enough at that moment.
Most programs end before their timeouts: then the next pass finds an earlier moment, and never a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import groupby
from operator import attrgetter

from jobs.rules.scheduling.free_capacity import Amounts, CapacityIndex
from jobs.rules.scheduling.future_capacity import FutureCapacity, without
from jobs.rules.scheduling.resource_requests import JobRequest
from jobs.rules.scheduling.running_jobs import HostClaim, RunningJob

_ends: Callable[[RunningJob], float] = attrgetter("ends")


@dataclass(frozen=True, slots=True)
class Reservation:
    """The start that a blocked job can count on, and what is kept for it on each host."""

    job: int
    at: float
    ends: float
    claims: dict[int, list[HostClaim]]
    spare: dict[int, Amounts]
    last: tuple[int, ...]
    """The hosts that are the last to get capacity for it."""
    open_now: int
    """How many hosts can hold one of its largest replicas now."""

    def as_running(self) -> RunningJob:
        claims = tuple(claim for each in self.claims.values() for claim in each)
        return RunningJob(self.job, self.ends, claims)


def find_reservation(
    capacity: CapacityIndex,
    running: Sequence[RunningJob],
    promised: Sequence[Reservation],
    job: int,
    request: JobRequest,
    location: str,
    now: float,
    lasts_s: float,
) -> Reservation | None:
    """The first moment at which the job fits; None if that cannot be known.

    `running`: the jobs on the hosts in question, by their ends. `promised`: earlier reservations; what they keep counts
    as taken from now on.
    """
    future = FutureCapacity(capacity, request, location)
    for other in promised:
        future.change(other.as_running().claims, -1)
    open_now = future.hosts_with_room()
    since: dict[int, float] = {}
    at = now
    if not future.enough():
        at = _released(future, running, promised, since)
    claims = (
        future.assign(sorted(future.free, key=lambda host: (since.get(host, now), host))) if at >= 0 else None
    )
    if claims is None:
        return None
    last = tuple(sorted(host for host in claims if since.get(host, now) == at > now))
    spare = {host: without(future.free[host], held) for host, held in claims.items()}
    return Reservation(job, at, at + lasts_s, claims, spare, last, open_now)


def _released(
    future: FutureCapacity,
    running: Sequence[RunningJob],
    promised: Sequence[Reservation],
    since: dict[int, float],
) -> float:
    """Let running jobs and reservations end in their order until the job fits. Returns that moment, or -1."""
    reserved = sorted((each.as_running() for each in promised), key=_ends)
    for at, ending in groupby(merge(running, reserved, key=_ends) if reserved else running, key=_ends):
        more = False
        for each in ending:
            if future.change(each.claims):
                more = True
                since.update((claim.host, at) for claim in each.claims if claim.host in future.free)
        if more and future.enough():
            return at
    return -1.0
