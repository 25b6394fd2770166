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

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Case, Exists, F, FloatField, Value, When

from agents.infra.clock import Clock
from agents.infra.database_errors import DATABASE_UNAVAILABLE
from agents.infra.failpoints import failpoint
from agents.infra.sql import Parameter, SelectStatement, UpdateStatement
from agents.models import Recovery
from jobs.lifecycle import claims, faulty_jobs, job_history, snapshot
from jobs.lifecycle.advance import advance_quietly
from jobs.lifecycle.claims import Assignment
from jobs.models import Job, Replica, Tick, Transition
from jobs.projects import claim_holders, quotas, usage
from jobs.rules.lifecycle.decide import LOOK_AGAIN_S
from jobs.rules.lifecycle.states import JobState, ReplicaState
from jobs.rules.scheduling.order import WaitingJob
from jobs.rules.scheduling.policy import ClusterView, QueueDecision, decide_queue
from jobs.rules.scheduling.views import Placement
from jobs.rules.scheduling.wait_reasons import Wait, WaitReason
from jobs.rules.spec.custom_job import CustomJobSpec
from jobs.scheduling import capacity, moves, queue_snapshot
from jobs.scheduling.capacity import LocationCapacity
from jobs.scheduling.pass_lock import TICK, count_pass, lock_pass, serial
from jobs.wake import announce, hints

log = logging.getLogger(__name__)

MAX_TOLD = 2_000
MAX_AT_ONCE = 500
SHORT_QUEUE = 100
REST_PER_JOB, MAX_REST = timedelta(milliseconds=5), timedelta(seconds=30)
OUR_FAULT = Wait(
    WaitReason.FAULT, "Its place could not be prepared, by a fault of Trainyard. The server's log says more."
)
NONE_UP = "No host is up: those in service do not answer, are being checked, or are closed to new jobs."

_questions = SelectStatement(
    lambda: (
        Tick.objects.filter(name=TICK)
        .order_by()
        .values_list(
            "serial",
            Exists(queue_snapshot.waiting_jobs().order_by()),
            Exists(moves.hosts_to_leave().order_by()),
            Exists(Recovery.objects.filter(confirmed_at=None).order_by()),
        )
    )
)
_placed = UpdateStatement(
    lambda: Job.every.filter(pk__among=Parameter("jobs"), state=JobState.QUEUED),
    "updated_at",
    "due_at",
    state=JobState.PENDING,
    version=F("version") + 1,
    reason="",
    earliest_start_at=None,
    fault=None,
)
_starting = UpdateStatement(
    lambda: Replica.objects.filter(job__among=Parameter("jobs")), state=ReplicaState.STARTING, restarts=0
)


@dataclass(frozen=True, slots=True)
class Placed:
    """A job that has its places, its row held."""

    job: Job
    spec: CustomJobSpec
    seats: tuple[Placement, ...]


@dataclass(slots=True)
class Pass:
    """What one pass did. `more`: another should follow at once; `refused`: for these places are somebody else's."""

    hosts: set[int] = field(default_factory=set)
    preempted: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    more: bool = False


def schedule_unasked(now: datetime) -> None:
    """The sweep's look, in case a hint was lost. A pass costs what the queue is long, so a long one is let rest."""
    faulty_jobs.offer_again(now)
    waiting = queue_snapshot.waiting_jobs().count()
    if waiting > SHORT_QUEUE and not _asked()[1]:
        at = Tick.objects.filter(name=TICK).values_list("at", flat=True).first()
        if at is not None and timedelta() <= now - at < min(waiting * REST_PER_JOB, MAX_REST):
            return
    schedule(now)


def schedule(now: datetime) -> None:
    """Place whom there is room for, and tell the dispatchers."""
    hints.hosts(schedule_quietly(now))


def schedule_quietly(now: datetime) -> frozenset[int]:
    """The same; the hosts on which something is wanted now are returned."""
    clock = Clock(now)
    hosts: set[int] = set()
    refused: set[int] = set()
    asked, leaving = _asked()
    if leaving:
        hosts |= moves.move_replicas(clock)
        asked = _asked()[0]  # who had to leave may wait now
    while asked is not None:
        more, preempted = False, set[int]()
        with transaction.atomic():
            tick = lock_pass()
            if tick.serial < asked + 2:
                now = clock.now()
                passed = _pass(now)
                hosts |= passed.hosts
                preempted = passed.preempted
                # A job that is offered a place again, though it should rest, asks for no other pass: it would for ever.
                more = passed.more or not passed.refused <= refused
                refused |= passed.refused
                count_pass(tick, now)
            failpoint("schedule.before")
        failpoint("schedule.after")
        if preempted:
            hosts |= advance_quietly(preempted, clock).hosts
        asked = _asked()[0] if more else None
    return frozenset(hosts)


def _asked() -> tuple[int | None, bool]:
    """How many passes there were before now (None: nobody waits), and whether some must leave their hosts.

    One query, for nearly every call ends with it.
    """
    if not (rows := _questions()):
        return (serial() if queue_snapshot.waiting_jobs().exists() else None), moves.hosts_to_leave().exists()
    before, somebody, leaving, observing = rows[0]
    if observing:
        return None, False
    return (before if somebody else None), leaving


def _pass(now: datetime) -> Pass:
    done = Pass()
    held = claim_holders.read_holders()
    here = capacity.read_capacity(held)
    queue = queue_snapshot.read_queue(here, now)
    if not here.views:
        why = here.why_none(NONE_UP)
        _tell(done, queue, QueueDecision(waits={each.job: why for each in queue.waiting}), now)
        return done
    occupied = queue_snapshot.read_running(held, here.kinds, now)
    served = decide_queue(
        ClusterView(
            here.views,
            capacity.ports(),
            occupied.running,
            usage.shares(now, held) if queue.several else {},
            occupied.held,
            settings.TRAINYARD.preempt_grace_s + queue_snapshot.AFTER_STOP_S,
        ),
        queue.waiting,
        quotas.read_ledger(now),
        now.timestamp(),
    )
    done.more = served.more
    if here.closed:
        _add_what_is_closed(here, queue, served)
    placed = _locked(served.placed, done, now)
    _seat(placed, here, served, done, now)
    _make_room(served, done, now)
    _tell(done, queue, served, now)
    _stop_clocks(queue, served, now)
    return done


def _add_what_is_closed(
    here: LocationCapacity, queue: queue_snapshot.WaitingQueue, served: QueueDecision
) -> None:
    # Thousands of jobs share a few answers.
    added: dict[tuple[Wait, str], Wait] = {}
    for each in queue.waiting:
        wait = served.waits.get(each.job)
        if wait is None or each.job in served.over_quota:
            continue
        key = (wait, each.location)
        if key not in added:
            added[key] = wait._replace(text=here.why(wait.text, each.location))
        served.waits[each.job] = added[key]


def _locked(
    placed: Sequence[tuple[WaitingJob, tuple[Placement, ...]]], done: Pass, now: datetime
) -> list[Placed]:
    """The rows, held from here on. Who was cancelled meanwhile is left out, and so is who cannot be read."""
    ids = [each.job for each, _ in placed]
    jobs = {job.pk: job for job in snapshot.lock_jobs(ids) if queue_snapshot.wants_a_place(job)}
    found = []
    for each, seats in placed:
        job = jobs.get(each.job)
        if job is None:
            done.refused.add(each.job)
            continue
        try:
            found.append(Placed(job, snapshot.spec_of(job), seats))
        except Exception as problem:
            faulty_jobs.set_aside(job, problem, "Job %s cannot be read, and waits.", now)
            done.refused.add(each.job)
    return found


def _seat(
    placed: Sequence[Placed], here: LocationCapacity, served: QueueDecision, done: Pass, now: datetime
) -> None:
    """All of them at once; if that fails, one by one, so that only the job concerned waits."""
    if not placed:
        return
    try:
        with transaction.atomic():
            done.hosts |= _write(placed, here, now)
    except DATABASE_UNAVAILABLE:
        raise
    except Exception:
        for each in placed:
            _seat_alone(each, here, served, done, now)


def _seat_alone(
    each: Placed, here: LocationCapacity, served: QueueDecision, done: Pass, now: datetime
) -> None:
    try:
        with transaction.atomic():
            done.hosts |= _write([each], here, now)
    except IntegrityError as problem:
        log.warning("Job %s was refused its place and is offered again: %s", each.job.pk, problem)
    except DATABASE_UNAVAILABLE:
        raise
    except Exception as problem:
        faulty_jobs.set_aside(each.job, problem, "Job %s cannot be given its place, and waits.", now)
        served.waits[each.job.pk] = OUR_FAULT
        done.refused.add(each.job.pk)


def _write(placed: Sequence[Placed], here: LocationCapacity, now: datetime) -> set[int]:
    ids = [each.job.pk for each in placed]
    replicas = {pk: {each.name: each for each in of} for pk, of in snapshot.replicas_of(ids).items()}
    runs, transitions = [], []
    for each in placed:
        chairs = [
            Assignment(replicas[each.job.pk][seat.replica], here.hosts[seat.host_id], seat.gpus, seat.port)
            for seat in each.seats
        ]
        runs += claims.first_runs(each.job, each.spec, chairs, now)
        transitions += job_history.of_placement(each.job, chairs, now)
    if _placed(jobs=ids, updated_at=now, due_at=now + timedelta(seconds=LOOK_AGAIN_S)) != len(ids):
        raise IntegrityError("A job was changed under its lock.")
    _starting(jobs=ids)
    claims.save(runs, now)
    Transition.objects.bulk_create(transitions)
    for each in placed:
        announce.hints([f"job:{each.job.pk}", f"jobs:{each.job.project.name}"])
    return {run.host_id for run in runs}


def _make_room(served: QueueDecision, done: Pass, now: datetime) -> None:
    """SPOT jobs whose place somebody else gets: the row says so, and what follows is decided by advance.py."""
    if not served.preempted:
        return
    jobs = Job.every.in_bulk({pk for one in served.preempted for pk in (one.job, one.by)})
    may = Job.every.filter(
        state__in=(JobState.PENDING, JobState.RUNNING), outcome="", cancel_requested_at=None, preempted_by=""
    )
    for one in sorted(served.preempted, key=lambda each: each.job):
        why = (
            f"Makes room for {_named(jobs[one.by], jobs[one.job])}: a SPOT job runs while nobody else needs its place. "
            "It counts against nothing."
        )
        if may.filter(pk=one.job).update(
            preempted_by=why, version=F("version") + 1, updated_at=now, due_at=now
        ):
            done.preempted.add(one.job)


def _stop_clocks(queue: queue_snapshot.WaitingQueue, served: QueueDecision, now: datetime) -> None:
    """Who waits for quota does not wait for capacity: the time for that stands still meanwhile (rules/verdict.py)."""
    waiting = Job.every.filter(state=JobState.QUEUED)
    begin = (served.over_quota & queue.limited) - queue.paused.keys()
    if begin:
        waiting.filter(pk__in=begin, quota_since=None).update(quota_since=now)
    go_on = [pk for pk in sorted(queue.paused) if pk in served.waits and pk not in served.over_quota]
    for first in range(0, len(go_on), MAX_AT_ONCE):
        ids = go_on[first : first + MAX_AT_ONCE]
        stood = [(pk, max((now - queue.paused[pk]).total_seconds(), 0.0)) for pk in ids]
        of_each = Case(*(When(pk=pk, then=Value(s)) for pk, s in stood), output_field=FloatField())
        waiting.filter(pk__in=ids, quota_since__isnull=False).update(
            quota_since=None, quota_s=F("quota_s") + of_each, due_at=now
        )


def _named(job: Job, to: Job) -> str:
    """What people of another project are not told: which job it is, and whose."""
    if job.project_id != to.project_id:
        return "a job of another project"
    return f"job {job.pk}, {job.display_name}, of {job.owner_name}"


def _tell(done: Pass, queue: queue_snapshot.WaitingQueue, served: QueueDecision, now: datetime) -> None:
    """Words are written only where they changed, so that a long queue costs nothing while it waits."""
    changed = list(queue_snapshot.changed_reasons(queue, served.waits, served.starts))
    done.more |= len(changed) > MAX_TOLD
    waits: dict[tuple[Wait, float | None], list[int]] = defaultdict(list)
    for pk in changed[:MAX_TOLD]:
        waits[served.waits[pk], served.starts.get(pk)].append(pk)
    told: dict[int, Wait] = {}
    for (wait, at), ids in waits.items():
        told.update(dict.fromkeys(ids, wait))
        Job.every.filter(pk__in=ids, state=JobState.QUEUED).update(
            reason=wait.text,
            earliest_start_at=None if at is None else datetime.fromtimestamp(at, UTC),
            version=F("version") + 1,
            updated_at=now,
        )
        announce.hints(f"job:{pk}" for pk in ids)
    if told:
        Transition.objects.bulk_create(job_history.of_waiting(told, now))
