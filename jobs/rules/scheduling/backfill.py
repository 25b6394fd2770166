"""When a job that is blocked will have its place at the latest, and on which hosts: its reservation.

Every job is over when its timeout is. So what runs is taken away in that order, until the blocked job fits; who comes
behind it may use what is free now only if it is over before that moment, or leaves enough at that moment. Programs
mostly end before their timeouts: then the next pass finds an earlier moment, and never a later one.
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
    """The start that a blocked job can count on, and what is kept for it there."""

    job: int
    at: float
    ends: float
    seats: dict[int, list[HostClaim]]
    spare: dict[int, Amounts]
    last: tuple[int, ...]
    """The hosts that are the last to have room."""
    open_now: int
    """How many hosts have room now."""

    def as_running(self) -> RunningJob:
        claims = tuple(claim for each in self.seats.values() for claim in each)
        return RunningJob(self.job, self.ends, claims)


def find_reservation(
    house: CapacityIndex,
    running: Sequence[RunningJob],
    promised: Sequence[Reservation],
    job: int,
    asks: JobRequest,
    location: str,
    now: float,
    lasts_s: float,
) -> Reservation | None:
    """`running`: those on the hosts in question, by their ends. What was promised before counts as taken from now on.

    None: nobody can know.
    """
    stock = FutureCapacity(house, asks, location)
    for other in promised:
        stock.change(other.as_running().claims, -1)
    open_now = stock.hosts_with_room()
    since: dict[int, float] = {}
    at = now
    if not stock.enough():
        at = _released(stock, running, promised, since)
    seats = (
        stock.seats(sorted(stock.free, key=lambda host: (since.get(host, now), host))) if at >= 0 else None
    )
    if seats is None:
        return None
    last = tuple(sorted(host for host in seats if since.get(host, now) == at > now))
    spare = {host: without(stock.free[host], claims) for host, claims in seats.items()}
    return Reservation(job, at, at + lasts_s, seats, spare, last, open_now)


def _released(
    stock: FutureCapacity,
    running: Sequence[RunningJob],
    promised: Sequence[Reservation],
    since: dict[int, float],
) -> float:
    """Let everything end in its order until the job fits; when that is, or -1."""
    also = sorted((each.as_running() for each in promised), key=_ends)
    for at, ending in groupby(merge(running, also, key=_ends) if also else running, key=_ends):
        more = False
        for each in ending:
            if stock.change(each.claims):
                more = True
                since.update((claim.host, at) for claim in each.claims if claim.host in stock.free)
        if more and stock.enough():
            return at
    return -1.0
