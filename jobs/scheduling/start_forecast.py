"""When a job that is not submitted yet could start: now and where, or not now, why, and when at the latest.

It places and reserves nothing. It looks past the jobs that already wait, because their order can still change.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property

from agents.infra.shared_answers import SharedAnswers
from jobs.projects import claim_holders
from jobs.projects.claim_holders import ClaimHolder
from jobs.rules.scheduling import resource_requests
from jobs.rules.scheduling.backfill import find_reservation
from jobs.rules.scheduling.placement import NoCapacity, Placer
from jobs.rules.scheduling.policy import AFTER_TIMEOUT_S
from jobs.rules.scheduling.running_jobs import RunningJob, by_end
from jobs.rules.scheduling.time_text import whole_minute
from jobs.rules.spec.custom_job import CustomJobSpec
from jobs.rules.spec.image_aliases import with_images
from jobs.rules.spec.machine_types import Types
from jobs.scheduling import capacity, changes, machine_types, queue_snapshot
from jobs.scheduling.capacity import ClusterCapacity
from jobs.scheduling.image_aliases import images_used

# With a thousand hosts the rows take most of the time of a forecast, and a form asks for one after each change. A
# submit does not rely on it.
RELIED_FOR = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Forecast:
    """`hosts`: where it could start now. `waits`: why not now, as text. `at`: when it starts at the latest; None if
    that cannot be known, because hosts that it needs are closed or do not answer."""

    hosts: tuple[str, ...] = ()
    waits: str = ""
    at: datetime | None = None


@dataclass(frozen=True)
class _Cluster:
    here: ClusterCapacity
    held: Sequence[ClaimHolder]
    now: datetime
    # Who uses the placer takes capacity for a moment.
    lock: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def placer(self) -> Placer:
        """To sort a thousand hosts into its buckets takes longer than most forecasts."""
        return Placer(self.here.views, capacity.ports())

    @cached_property
    def running(self) -> tuple[RunningJob, ...]:
        """In the order of their ends. Only a job that could not start now needs them."""
        running = queue_snapshot.read_running(self.held, self.here.kinds, self.now).running
        return tuple(sorted(running, key=by_end))


_recent: SharedAnswers[str, _Cluster] = SharedAnswers(RELIED_FOR, 1, changes.LONGEST)


def forecast(spec: CustomJobSpec, location: str, types: Types, project: int, now: datetime) -> Forecast:
    """For a job of this project that could start some day: see `services.check_can_start`."""
    cluster = _recent.get("", lambda: _read(now), changes.stamp)
    here = cluster.here
    images = images_used(spec, location)
    spec = with_images(spec, images, machine_types.engine_of(with_images(spec, images), location))
    request = resource_requests.decode_request(resource_requests.encode_request(spec, types))
    scope = here.scope(here.location(location), project, request.engines)
    with cluster.lock:
        placed = cluster.placer.would_place(request.replica_requests(), scope)
    if not isinstance(placed, NoCapacity):
        return Forecast(tuple(sorted({here.hosts[seat.host_id].name for seat in placed})), at=now)
    if not here.in_service:
        return Forecast(waits=capacity.NO_HOST)
    ends = now.timestamp(), spec.timeout_s + AFTER_TIMEOUT_S
    with cluster.lock:
        index = cluster.placer.capacity  # all of which is free again
        found = find_reservation(index, cluster.running, (), 0, request, scope, *ends)
    at = datetime.fromtimestamp(whole_minute(found.at), UTC) if found is not None else None
    return Forecast(waits=here.why(placed.text, scope, project), at=at)


def _read(now: datetime) -> _Cluster:
    held = claim_holders.read_holders()
    return _Cluster(capacity.read_capacity(held), held, now)
