"""What a pass writes into the rows of the jobs that wait: why each waits, and since when it waits for quota.

A pass writes in several places: jobs that get their place, SPOT jobs that lose theirs, and those that wait. `hold`
locks all of them before the first is written, because all code locks jobs in the order of their ids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import UTC, datetime

from django.db.models import Case, F, FloatField, Value, When

from jobs.lifecycle import job_history, snapshot
from jobs.models import Job
from jobs.rules.lifecycle.states import JobState
from jobs.rules.scheduling.policy import QueueDecision
from jobs.rules.scheduling.wait_reasons import Wait
from jobs.scheduling.queue_snapshot import WaitingQueue, changed_reasons
from jobs.wake import announce

MAX_REASONS_WRITTEN = 2_000
MAX_AT_ONCE = 500


def hold(queue: WaitingQueue, decision: QueueDecision) -> set[int]:
    """Lock all jobs that this pass may write. Returns them."""
    starting = {each.job for each, _ in decision.placed if not each.undrawn}
    changed = list(changed_reasons(queue, decision.waits, decision.starts))[:MAX_REASONS_WRITTEN]
    others = {*changed, *_begin_to_pause(queue, decision), *_cease_to_pause(queue, decision)}
    others |= {one.job for one in decision.preempted} | {
        each.job for each, _ in decision.placed if each.undrawn
    }
    written = starting | others
    # One row is locked as it is written, and those that start are locked together when they are read.
    if others and len(written) > 1:
        snapshot.hold_jobs(ids=written)
    return written


def write(queue: WaitingQueue, decision: QueueDecision, held: Collection[int], now: datetime) -> bool:
    """Write what has changed for the jobs that wait. Returns whether there was more than a pass writes."""
    more = _write_reasons(queue, decision, held, now)
    _pause_capacity_waits(queue, decision, now)
    return more


def _write_reasons(
    queue: WaitingQueue, decision: QueueDecision, held: Collection[int], now: datetime
) -> bool:
    """Write the reasons that changed, and no others, so that a long queue costs nothing while it waits."""
    changed = list(changed_reasons(queue, decision.waits, decision.starts))
    waits: dict[tuple[Wait, float | None], list[int]] = defaultdict(list)
    for pk in [pk for pk in changed if pk in held][:MAX_REASONS_WRITTEN]:
        waits[decision.waits[pk], decision.starts.get(pk)].append(pk)
    written: dict[int, Wait] = {}
    for (wait, at), ids in waits.items():
        written.update(dict.fromkeys(ids, wait))
        Job.every.filter(pk__in=ids, state=JobState.QUEUED).update(
            reason=wait.text,
            earliest_start_at=None if at is None else datetime.fromtimestamp(at, UTC),
            version=F("version") + 1,
            updated_at=now,
        )
        announce.hints(f"job:{pk}" for pk in ids)
    if written:
        job_history.save(job_history.of_waiting(written, now))
    return len(changed) > MAX_REASONS_WRITTEN


def _pause_capacity_waits(queue: WaitingQueue, decision: QueueDecision, now: datetime) -> None:
    """Time in which a job waits for quota does not count as waiting for capacity (rules/lifecycle/verdict.py)."""
    waiting = Job.every.filter(state=JobState.QUEUED)
    if paused := _begin_to_pause(queue, decision):
        waiting.filter(pk__in=paused, quota_since=None).update(quota_since=now)
    resumed = _cease_to_pause(queue, decision)
    for first in range(0, len(resumed), MAX_AT_ONCE):
        ids = resumed[first : first + MAX_AT_ONCE]
        waited = [(pk, max((now - queue.waiting_for_quota[pk]).total_seconds(), 0.0)) for pk in ids]
        of_each = Case(*(When(pk=pk, then=Value(s)) for pk, s in waited), output_field=FloatField())
        waiting.filter(pk__in=ids, quota_since__isnull=False).update(
            quota_since=None, quota_s=F("quota_s") + of_each, due_at=now
        )


def _begin_to_pause(queue: WaitingQueue, decision: QueueDecision) -> set[int]:
    return (decision.over_quota & queue.with_wait_limit) - queue.waiting_for_quota.keys()


def _cease_to_pause(queue: WaitingQueue, decision: QueueDecision) -> list[int]:
    waiting = sorted(queue.waiting_for_quota)
    return [pk for pk in waiting if pk in decision.waits and pk not in decision.over_quota]
