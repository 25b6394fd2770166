"""Placing waiting jobs: one pass at a time over all of them, whatever the number of workers.

A pass runs under the row lock of the tick "schedule". Whoever had to wait for that lock while a whole pass began and
ended has nothing left to do: that pass saw everything that the waiter was sent for.

All of a job is written together or nothing: runs with their claims, the job's state, its history. The unique
constraints on GPUs and ports are the second key; if they refuse, the job is offered again in the next pass.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import Exists, F, QuerySet

from agents.failpoints import failpoint
from jobs import announce, events, floor, hints, seating, snapshot
from jobs.clock import Clock
from jobs.floor import Floor
from jobs.models import Job, Replica, Tick, Transition
from jobs.queue import BEHIND, Queue, Waiting
from jobs.rules.decide import LOOK_AGAIN_S
from jobs.rules.placement import Seat
from jobs.rules.states import JobState, ReplicaState
from jobs.seating import Chair

log = logging.getLogger(__name__)

TICK = "schedule"
CHUNK = 100
MOST_PLACED = 200
MOST_TOLD = 2_000
NONE_UP = "No host is up: those in service do not answer, are being checked, or are closed to new jobs."
EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(slots=True)
class Pass:
    """What one pass did."""

    placed: list[tuple[Job, tuple[Seat, ...]]] = field(default_factory=list)
    reasons: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    hosts: set[int] = field(default_factory=set)
    more: bool = False

    def wait(self, job: Job, why: str) -> None:
        if job.reason != why:
            self.reasons[why].append(job.pk)


def schedule(now: datetime) -> None:
    """Place whom there is room for, and tell the dispatchers."""
    hints.hosts(schedule_quietly(now))


def schedule_quietly(now: datetime) -> frozenset[int]:
    """The same; the hosts on which something is wanted now are returned."""
    hosts: set[int] = set()
    clock = Clock(now)
    asked = _asked()
    while asked is not None:
        more = False
        with transaction.atomic():
            tick = claim()
            if tick.serial < asked + 2:
                now = clock.now()
                done = _pass(now)
                hosts |= done.hosts
                more = done.more
                Tick.objects.filter(pk=tick.pk).update(serial=F("serial") + 1, at=now)
            failpoint("schedule.before")
        failpoint("schedule.after")
        asked = _asked() if more else None
    return frozenset(hosts)


def _asked() -> int | None:
    """How many passes there were before now. None: nobody waits. One query, for nearly every call ends with it."""
    row = Tick.objects.filter(name=TICK).values_list("serial", Exists(waiting().order_by())).first()
    if row is None:
        return _serial() if waiting().exists() else None
    serial, somebody = row
    return serial if somebody else None


def waiting() -> QuerySet[Job]:
    """Jobs that want a place, in their order."""
    return Job.every.filter(state=JobState.QUEUED, outcome="", cancel_requested_at=None).order_by("pk")


def claim() -> Tick:
    """No pass runs while this lock is held."""
    rows = Tick.objects.select_for_update().filter(name=TICK)
    tick = rows.first()
    if tick is None:
        _serial()
        tick = rows.get()
    return tick


def _serial() -> int:
    return Tick.objects.get_or_create(name=TICK, defaults={"at": EPOCH})[0].serial


def _pass(now: datetime) -> Pass:
    ground = floor.look()
    done = Pass()
    queue = Queue({view.id: view for view in ground.views}, floor.ports())
    rest = BEHIND if ground.views else ground.why_none(NONE_UP)
    last: int | None = 0
    while last is not None and not queue.full and len(done.placed) < MOST_PLACED:
        jobs = _locked(waiting().filter(pk__gt=last)[:CHUNK])
        for job in jobs:
            _offer(queue, ground, job, done)
        last = jobs[-1].pk if len(jobs) == CHUNK else None
    if last is not None and queue.full:
        unaware = waiting().filter(pk__gt=last).exclude(reason=rest)
        done.reasons[rest] += [job.pk for job in _locked(unaware.defer("spec")[:MOST_TOLD])]
    done.more = last is not None and not queue.full
    _seat(done, ground, now)
    _tell_why(done, now)
    return done


def _locked(jobs: QuerySet[Job]) -> list[Job]:
    return list(jobs.select_for_update(no_key=True, of=("self",)).select_related("project"))


def _offer(queue: Queue, ground: Floor, job: Job, done: Pass) -> None:
    try:
        asks = floor.asks_of(snapshot.spec_of(job), snapshot.types_of(job))
        answer = queue.offer(Waiting(job.pk, asks, ground.location(job.location_name), job.attempt))
    except Exception:
        # It must not stand in the way of all others; it is offered again in each pass.
        log.exception("Job %s could not be offered a place.", job.pk)
        return
    if isinstance(answer, str):
        done.wait(job, ground.why(answer, job.location_name))
    else:
        done.placed.append((job, answer))


def _seat(done: Pass, ground: Floor, now: datetime) -> None:
    """All of them at once; if a constraint refuses, one by one, so that only the job concerned waits."""
    if not done.placed:
        return
    try:
        with transaction.atomic():
            done.hosts |= _write(done.placed, ground, now)
    except IntegrityError:
        for placed in done.placed:
            try:
                with transaction.atomic():
                    done.hosts |= _write([placed], ground, now)
            except IntegrityError as problem:
                log.warning("Job %s was refused its place and is offered again: %s", placed[0].pk, problem)


def _write(placed: Sequence[tuple[Job, tuple[Seat, ...]]], ground: Floor, now: datetime) -> set[int]:
    ids = [job.pk for job, _ in placed]
    replicas: dict[int, dict[str, Replica]] = defaultdict(dict)
    for replica in Replica.objects.filter(job__in=ids):
        replicas[replica.job_id][replica.name] = replica
    runs, transitions = [], []
    for job, seats in placed:
        chairs = [
            Chair(replicas[job.pk][seat.replica], ground.hosts[seat.host_id], seat.gpus, seat.port)
            for seat in seats
        ]
        runs += seating.seat(job, snapshot.spec_of(job), chairs, now)
        transitions += events.of_placement(job, chairs, now)
    changed = Job.every.filter(pk__in=ids, state=JobState.QUEUED).update(
        state=JobState.PENDING,
        version=F("version") + 1,
        reason="",
        updated_at=now,
        due_at=now + timedelta(seconds=LOOK_AGAIN_S),
    )
    if changed != len(ids):
        raise IntegrityError("A job was changed under its lock.")
    Replica.objects.filter(job__in=ids).update(state=ReplicaState.STARTING, restarts=0)
    seating.save(runs, now)
    Transition.objects.bulk_create(transitions)
    for job, _ in placed:
        announce.hints([f"job:{job.pk}", f"jobs:{job.project.name}"])
    return {run.host_id for run in runs}


def _tell_why(done: Pass, now: datetime) -> None:
    """Words are written only where they changed, so that a long queue costs nothing while it waits."""
    Transition.objects.bulk_create(events.of_waiting(done.reasons, now))
    for why, ids in done.reasons.items():
        Job.every.filter(pk__in=ids, state=JobState.QUEUED).update(
            reason=why, version=F("version") + 1, updated_at=now
        )
        announce.hints(f"job:{pk}" for pk in ids)
