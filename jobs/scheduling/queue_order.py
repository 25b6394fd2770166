"""The order of the queue as people are shown it: that in which the next pass offers places. It decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from agents.infra.sql import SelectStatement
from jobs.projects import claim_holders, locations, usage
from jobs.rules.scheduling.fairness import Share
from jobs.rules.scheduling.order import WaitingJob, in_order
from jobs.scheduling import queue_snapshot

_rows = SelectStatement(
    lambda: (
        queue_snapshot.waiting_jobs()
        .exclude(resource_request="")
        .values_list(
            "pk",
            "project",
            "owner",
            "location_name",
            "resource_request",
            "priority",
            "spot",
            "queue_pin__rank",
            "queue_pin__whole",
        )
    )
)


@dataclass(frozen=True, slots=True)
class QueueOrder:
    """`waiting` is in its order. Locations are as the documents name them, and timeouts are not read."""

    waiting: list[WaitingJob]
    shares: Mapping[int, Share]
    held: Mapping[int, float]

    @property
    def ids(self) -> list[int]:
        return [each.job for each in self.waiting]


def read_order(now: datetime) -> QueueOrder:
    """The jobs that wait for a place, first come those that are offered one first. Jobs that are offered none are left
    out: those that were set aside for a while, and those of projects that their location does not serve any more.
    """
    waiting = list(_served(_waiting()))
    if len({each.project for each in waiting}) <= 1:
        return QueueOrder(in_order(waiting, {}, {}), {}, {})
    claims = claim_holders.read_holders()
    shares, held = usage.shares(now, claims), queue_snapshot.held_by_project(claims)
    return QueueOrder(in_order(waiting, shares, held), shares, held)


def _served(waiting: Iterable[WaitingJob]) -> Iterator[WaitingJob]:
    bindings, existing = locations.read_bindings(), frozenset(locations.names())
    for each in waiting:
        if bindings.serves(locations.resolved(each.location, existing), each.project):
            yield each


def _waiting() -> list[WaitingJob]:
    return [
        WaitingJob(
            pk,
            project,
            owner,
            location,
            request,
            0.0,
            priority,
            spot,
            pin=rank if whole else None,
            own_pin=None if whole else rank,
        )
        for pk, project, owner, location, request, priority, spot, rank, whole in _rows()
    ]
