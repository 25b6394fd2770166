"""Jobs that people move in the queue: written under the lock of the pass, told in histories, audit and reasons.

The caller has checked that the person may do it: in the whole queue, or in the project.
"""

from __future__ import annotations

from collections.abc import Collection, MutableMapping, Sequence
from datetime import datetime
from hashlib import blake2b

from django.db import transaction

from agents.infra.refusals import Conflict, Refused
from agents.infra.texts import join, said, said_of
from jobs.lifecycle import snapshot
from jobs.models import Job, Project, QueuePin, Tick, Transition
from jobs.projects import audit
from jobs.rules.lifecycle.history_kinds import MOVED, HistoryKind
from jobs.rules.lifecycle.states import JobState
from jobs.rules.list_text import list_text
from jobs.rules.scheduling import reorder
from jobs.rules.scheduling.order import WaitingJob, in_order
from jobs.rules.scheduling.policy import ClusterView
from jobs.rules.scheduling.reorder import Move, Pins, To
from jobs.rules.scheduling.wait_reasons import Wait
from jobs.scheduling import queue_order, queue_view
from jobs.scheduling.pass_lock import EPOCH, lock_pass
from jobs.scheduling.queue_snapshot import WaitingQueue
from jobs.wake import announce, hints

# Jobs behind the first of the queue are not told who passed them: their reasons would be written at every move.
MOST_TOLD = 500
FORECAST_TICK = "expected starts"
CHANGED = said(
    "The queue has changed since you looked. See what the move would do now, and confirm it again."
)


def stamp(pins: Pins) -> str:
    """A short text that changes when a move would pin other jobs than before."""
    return blake2b(repr((pins.order, sorted(pins.freed))).encode(), digest_size=9).hexdigest()


def pins_of(queue: Sequence[WaitingJob], move: Move) -> Pins:
    """What the move pins. Raises Refused when it is not possible."""
    try:
        return reorder.pins(queue, move)
    except reorder.ImpossibleMove as impossible:
        raise Refused(impossible.field, impossible.message) from None


def move(move: Move, seen: str, actor: str, now: datetime) -> Pins:
    """Move the jobs. `seen`: the stamp of what the person was shown. Raises Conflict when the queue is another now, and
    Refused when the move is not possible."""
    with transaction.atomic():
        lock_pass()
        order = queue_order.read_order(now)
        pins = pins_of(order.waiting, move)
        if stamp(pins) != seen:
            queue_view.forget_recent()
            raise Conflict("stamp", CHANGED)
        after = in_order(reorder.pinned(order.waiting, pins, move), order.shares, order.held)
        jobs = Job.objects.select_related("project").in_bulk(move.jobs)
        places = {each.job: place for place, each in enumerate(after, 1)}
        _write(pins, move, actor, now)
        _tell(jobs, move, places, actor, now)
        before = [str(each.job) for each in order.waiting[: reorder.MOST_PINNED]]
        _audit(jobs, move, before, [str(each.job) for each in after[: reorder.MOST_PINNED]], actor, now)
        # The next sweep simulates the queue again.
        Tick.objects.filter(name=FORECAST_TICK).update(at=EPOCH)
    queue_view.forget_recent()
    hints.schedule()
    return pins


def _write(pins: Pins, move: Move, actor: str, now: datetime) -> None:
    QueuePin.objects.exclude(job__state=JobState.QUEUED).delete()
    QueuePin.objects.filter(job__in=pins.freed).delete()
    known = QueuePin.objects.in_bulk(pins.order)
    whole = move.project is None
    for rank, job in enumerate(pins.order, 1):
        row = known.get(job)
        if row is None or row.whole != whole or job in pins.moved:
            row = QueuePin(job_id=job, whole=whole, moved=job in pins.moved, by=actor[:150], at=now)
        row.rank = float(rank)
        known[job] = row
    QueuePin.objects.bulk_create(
        known.values(),
        update_conflicts=True,
        unique_fields=["job"],
        update_fields=["rank", "whole", "moved", "by", "at"],
    )


def _tell(jobs: dict[int, Job], move: Move, places: dict[int, int], actor: str, now: datetime) -> None:
    for job in jobs.values():
        if move.to == To.AUTOMATIC:
            cause = said(
                "It is back in the automatic order of the queue, at place {place}.", place=places[job.pk]
            )
        else:
            cause = said("It was moved to place {place} of the queue.", place=places[job.pk])
        Transition.objects.create(
            job=job,
            at=now,
            kind=HistoryKind.MOVE,
            subject=MOVED,
            to_state=move.to,
            attempt=job.attempt,
            cause=cause,
            actor=actor[:150],
        )
    snapshot.hold_jobs(ids=jobs)
    Job.every.filter(pk__in=jobs).update(updated_at=now)
    announce.hints([f"job:{pk}" for pk in jobs])
    announce.hints(f"jobs:{name}" for name in Project.objects.values_list("name", flat=True))


def _audit(
    jobs: dict[int, Job], move: Move, before: list[str], after: list[str], actor: str, now: datetime
) -> None:
    project = Project.objects.get(pk=move.project) if move.project is not None else None
    if project is not None:
        kept = set(
            map(
                str,
                Job.objects.filter(project=project, pk__in=[*before, *after]).values_list("pk", flat=True),
            )
        )
        before, after = [pk for pk in before if pk in kept], [pk for pk in after if pk in kept]
    told = list_text([f"{job.display_name} ({job.pk})" for job in jobs.values()], 3)
    audit.record(actor, "queue.reorder", "queue", told, before, after, now, project)


def name_who_moved(queue: WaitingQueue, cluster: ClusterView, waits: MutableMapping[int, Wait]) -> None:
    """Add to the reasons by whom, and behind how many jobs, a job was put back."""
    order = in_order(queue.waiting, cluster.shares, cluster.held)
    for job, passing in reorder.passed_by(order, cluster.shares, cluster.held, MOST_TOLD).items():
        wait = waits.get(job)
        if wait is not None:
            words = _behind(len(passing), {queue.pinned_by[each] for each in passing})
            waits[job] = wait._replace(text=join(" ", [wait.text, words]))


def _behind(number: int, people: Collection[str]) -> str:
    return said_of(
        number,
        "{people} placed {number} job ahead of it.",
        "{people} placed {number} jobs ahead of it.",
        people=list_text(sorted(people), 3),
    )
