"""The order of the queue as people are shown it: that in which the next pass offers places. It decides nothing."""

from __future__ import annotations

from datetime import datetime

from agents.infra.sql import SelectStatement
from jobs.projects import claim_holders, usage
from jobs.rules.scheduling.order import WaitingJob, in_order
from jobs.scheduling import queue_snapshot

_rows = SelectStatement(
    lambda: (
        queue_snapshot.waiting_jobs()
        .exclude(resource_request="")
        .values_list("pk", "project", "owner", "location_name", "resource_request", "priority", "spot")
    )
)


def read_order(now: datetime) -> list[int]:
    """The ids of the jobs that wait for a place, first come those that are offered one first. Jobs that were set aside
    for a while are left out.
    """
    waiting = [
        WaitingJob(pk, project, owner, location, request, 0.0, priority, spot)
        for pk, project, owner, location, request, priority, spot in _rows()
    ]
    if len({each.project for each in waiting}) <= 1:
        return [each.job for each in in_order(waiting, {}, {})]
    held = claim_holders.read_holders()
    shares = usage.shares(now, held)
    return [each.job for each in in_order(waiting, shares, queue_snapshot.held_by_project(held))]
