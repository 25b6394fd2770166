"""When waiting jobs are expected to start: simulated by a worker now and then, and kept in rows for all who look.

Two simulations say between which times: in one all jobs run to their limits, in the other as long as such jobs ran
lately. In both no job is added, and hosts that are closed or do not answer stay so.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from django.db import transaction

from jobs.models import ExpectedStart, Job
from jobs.rules.lifecycle.states import JobState
from jobs.rules.scheduling.order import WaitingJob
from jobs.rules.scheduling.simulation import at_limit, starts
from jobs.rules.scheduling.time_text import whole_minute
from jobs.scheduling import queue_snapshot
from jobs.scheduling.queue_view import QueueView, read_queue_view
from jobs.scheduling.usual_durations import UsualDurations, read_usual_durations

# Only the first of the queue are simulated.
MOST = 500
# After a simulation a process makes no other for so many times the processor time that it took.
REST = 20.0

_rests_until = 0.0


def keep_expected_starts(now: datetime) -> None:
    """Simulate the queue and write what changed."""
    global _rests_until
    if time.monotonic() < _rests_until:
        return
    began = time.thread_time()
    known = {row.job_id: row for row in ExpectedStart.objects.all()}
    found = {row.job_id: row for row in _simulated(now)} if queue_snapshot.waiting_jobs().exists() else {}
    _write(known, found)
    _rests_until = time.monotonic() + REST * (time.thread_time() - began)


def _simulated(now: datetime) -> Iterable[ExpectedStart]:
    seen = read_queue_view(now)
    durations = read_usual_durations()
    waiting = seen.of_first(MOST)
    limit = starts(seen.cluster, waiting, seen.ledger, now.timestamp())
    usual: Mapping[int, float] = {}
    ends = _usual_ends(seen, durations)
    if ends or any(durations.of(_kind(job)) for job in waiting):
        usual = starts(
            seen.cluster, waiting, seen.ledger, now.timestamp(), ends, lambda job: _usually(job, durations)
        )
    for pk in limit.keys() | usual.keys():
        yield ExpectedStart(job_id=pk, usual_at=_moment(usual.get(pk)), limit_at=_moment(limit.get(pk)))


def _kind(job: WaitingJob) -> tuple[int, int | None, str]:
    return job.project, job.owner, job.request


def _usually(job: WaitingJob, durations: UsualDurations) -> float:
    found = durations.of(_kind(job))
    return at_limit(job) if found is None else min(found, at_limit(job))


def _usual_ends(seen: QueueView, durations: UsualDurations) -> dict[int, float]:
    """When running jobs end, where that is known of their kind."""
    running = {each.job: each for each in seen.cluster.running if not each.stopping}
    jobs = Job.every.filter(state__in=(JobState.PENDING, JobState.RUNNING)).order_by()
    found = {}
    for pk, request, started_at in jobs.values_list("pk", "resource_request", "started_at"):
        each = running.get(pk)
        if each is None:
            continue
        began = started_at.timestamp() if started_at else each.since
        lasts = durations.of((each.project, each.owner, request), seen.read_at.timestamp() - began)
        if lasts is not None:
            found[pk] = min(began + lasts, each.ends)
    return found


def _moment(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(whole_minute(at), UTC)


def _write(known: Mapping[int, ExpectedStart], found: Mapping[int, ExpectedStart]) -> None:
    """Write the rows that changed, in one transaction."""
    changed = [row for pk, row in found.items() if pk not in known or _times(known[pk]) != _times(row)]
    gone = [pk for pk in known if pk not in found]
    if not changed and not gone:
        return
    with transaction.atomic():
        ExpectedStart.objects.filter(pk__in=gone).delete()
        # A job may have been deleted for good meanwhile.
        alive = set(Job.every.filter(pk__in=[row.job_id for row in changed]).values_list("pk", flat=True))
        ExpectedStart.objects.bulk_create(
            [row for row in changed if row.job_id in alive],
            update_conflicts=True,
            unique_fields=["job"],
            update_fields=["usual_at", "limit_at"],
        )


def _times(row: ExpectedStart) -> tuple[datetime | None, datetime | None]:
    return row.usual_at, row.limit_at
