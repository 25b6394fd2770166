"""The scheduling pass: place waiting jobs, one pass at a time over the whole queue, whatever the number of workers.

A pass runs under the row lock of the tick "schedule". A caller that waited for this lock while a whole other pass began
and ended has nothing left to do: that pass saw everything that the caller was woken for.

A job is written completely or not at all: its runs with their claims, its state, its history. The unique constraints
on GPUs and ports guard claims a second time; if they refuse, the job is offered a place again in the next pass.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Exists, F

from agents.infra.clock import Clock
from agents.infra.database_errors import DATABASE_UNAVAILABLE
from agents.infra.failpoints import failpoint
from agents.infra.sql import (
    AllOrNothing,
    Parameter,
    SelectStatement,
    UpdateStatement,
    read_ahead,
    write_together,
)
from agents.infra.texts import said
from agents.models import Recovery
from jobs.lifecycle import claims, faulty_jobs, job_history, snapshot
from jobs.lifecycle.advance import advance_quietly
from jobs.lifecycle.claims import Assignment
from jobs.models import Job, QueuePin, Replica, Run, Tick, Transition, Trial
from jobs.projects import claim_holders, quotas, usage
from jobs.rules.lifecycle.decide import LOOK_AGAIN_S
from jobs.rules.lifecycle.states import JobState, ReplicaState
from jobs.rules.scheduling.order import WaitingJob, is_pinned
from jobs.rules.scheduling.policy import ClusterView, QueueDecision, decide_queue
from jobs.rules.scheduling.views import Placement
from jobs.rules.scheduling.wait_reasons import Wait, WaitReason
from jobs.rules.spec.custom_job import CustomJobSpec
from jobs.scheduling import capacity, moves, queue_snapshot, reorder, written_waits
from jobs.scheduling.capacity import ClusterCapacity
from jobs.scheduling.pass_lock import LOCK, TICK, count_pass, lock_pass, serial
from jobs.wake import announce, hints

log = logging.getLogger(__name__)

SHORT_QUEUE = 100
PAUSE_PER_JOB, MAX_PAUSE = timedelta(milliseconds=5), timedelta(seconds=30)
OUR_FAULT = Wait(
    WaitReason.FAULT,
    said("Its place could not be prepared, by a fault of Trainyard. The server's log says more."),
)
DRAWING = Wait(
    WaitReason.PARAMETERS, said("There is a place for it. The parameters of this trial are being drawn.")
)
NONE_UP = said("No host is up: those in service do not answer, are being checked, or are closed to new jobs.")

_trials_of = SelectStatement(
    lambda: (
        Trial.objects.filter(job__among=Parameter("jobs"))
        .order_by()
        .values_list("job", "tuning_job", "wanted_at")
    )
)
_are_wanted = UpdateStatement(
    lambda: Trial.objects.filter(job__among=Parameter("jobs"), wanted_at=None), "wanted_at"
)
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
# What a pass asks the database before it decides, in its order: the lock first, for all else is read under it. Its row
# is there: `_what_to_do` has found or made it.
READS = {
    LOCK: {},
    claim_holders.HOLDERS: {},
    **capacity.READS,
    queue_snapshot.QUEUE: {},
    quotas.ANY_OF_PASS: {},
}


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """A job whose replicas all have a place. Its row is locked. `pinned`: a person had set its place in the queue."""

    job: Job
    spec: CustomJobSpec
    placements: tuple[Placement, ...]
    pinned: bool


@dataclass(slots=True)
class PassResult:
    """What one pass did. `more`: another pass should follow at once. `refused`: jobs that did not get their place.
    `drawn_by_caller`: the study for which the caller draws parameters itself."""

    drawn_by_caller: int | None = None
    hosts: set[int] = field(default_factory=set)
    preempted: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    more: bool = False


def schedule_unasked(now: datetime) -> None:
    """The sweep's call, in case a hint was lost. The cost of a pass grows with the queue, so with a long queue the
    next pass comes later."""
    faulty_jobs.offer_again(now)
    asked, must_move = _what_to_do()
    if asked is None and not must_move:
        return
    waiting = queue_snapshot.waiting_jobs().count()
    if waiting > SHORT_QUEUE and not must_move:
        at = Tick.objects.filter(name=TICK).values_list("at", flat=True).first()
        if at is not None and timedelta() <= now - at < min(waiting * PAUSE_PER_JOB, MAX_PAUSE):
            return
    schedule(now)


def schedule(now: datetime, drawn_by_caller: int | None = None) -> None:
    """Place the jobs for which there is capacity, and send hints to the dispatchers. `drawn_by_caller`: the study whose
    trials the caller looks at next, so that no hint has to ask for their parameters."""
    hints.hosts(schedule_quietly(now, drawn_by_caller))


def schedule_quietly(now: datetime, drawn_by_caller: int | None = None) -> frozenset[int]:
    """The same without hints. Returns the hosts on which something is wanted now."""
    clock = Clock(now)
    hosts: set[int] = set()
    refused: set[int] = set()
    asked, must_move = _what_to_do()
    if must_move:
        hosts |= moves.move_replicas(clock)
        asked = _what_to_do()[0]  # a job that had to leave may wait now
    while asked is not None:
        more, preempted = False, set[int]()
        with transaction.atomic(), read_ahead(READS):
            tick = lock_pass()
            if tick.serial < asked + 2:
                now = clock.now()
                result = _run_pass(now, PassResult(drawn_by_caller))
                hosts |= result.hosts
                preempted = result.preempted
                # A job that was refused before asks for no other pass: it would do so for ever.
                more = result.more or not result.refused <= refused
                refused |= result.refused
                count_pass(tick, now)
            failpoint("schedule.before")
        failpoint("schedule.after")
        if preempted:
            hosts |= advance_quietly(preempted, clock).hosts
        asked = _what_to_do()[0] if more else None
    return frozenset(hosts)


def _what_to_do() -> tuple[int | None, bool]:
    """How many passes were made until now (None: no job waits), and whether replicas must leave their hosts.

    One query, because nearly every call ends after it.
    """
    if not (rows := _questions()):
        return (serial() if queue_snapshot.waiting_jobs().exists() else None), moves.hosts_to_leave().exists()
    before, is_waiting, must_move, in_recovery = rows[0]
    if in_recovery:
        return None, False
    return (before if is_waiting else None), must_move


def _run_pass(now: datetime, result: PassResult) -> PassResult:
    held = claim_holders.read_holders()
    cluster = capacity.read_capacity(held)
    queue = queue_snapshot.read_queue(cluster, now)
    if not cluster.views:
        why = cluster.why_none(NONE_UP)
        nothing = QueueDecision(
            waits={each.job: why for each in queue.waiting} | queue.excluded,
            over_quota=set(queue.waiting_for_quota),  # nobody has looked: their pause goes on
        )
        result.more |= written_waits.write(queue, nothing, written_waits.hold(queue, nothing), now)
        return result
    running = queue_snapshot.read_running(held, cluster.kinds, now)
    seen = ClusterView(
        cluster.views,
        capacity.ports(),
        running.running,
        usage.shares(now, held) if queue.has_several_projects else {},
        running.held,
        settings.TRAINYARD.preempt_grace_s + queue_snapshot.AFTER_STOP_S,
    )
    decision = decide_queue(seen, queue.waiting, quotas.read_ledger(now), now.timestamp())
    result.more = decision.more
    decision.waits.update(queue.excluded)
    if cluster.closed or cluster.logins or any(view.engines is not None for view in cluster.views):
        _name_closed_hosts(cluster, queue, decision)
    if queue.pinned_by:
        reorder.name_who_moved(queue, seen, decision.waits)
    locked = written_waits.hold(queue, decision)
    _place(cluster, decision, result, now)
    _preempt(decision, result, now)
    result.more |= written_waits.write(queue, decision, locked, now)
    return result


def _name_closed_hosts(
    cluster: ClusterCapacity, queue: queue_snapshot.WaitingQueue, decision: QueueDecision
) -> None:
    """Add to the reasons what an admin has closed where the job would run, and which hosts cannot run its image."""
    # Thousands of jobs share a few reasons.
    added: dict[tuple[Wait, str, int], Wait] = {}
    for each in queue.waiting:
        wait = decision.waits.get(each.job)
        if wait is None or each.job in decision.over_quota:
            continue
        key = (wait, each.location, each.project if cluster.logins else 0)
        if key not in added:
            added[key] = wait._replace(text=cluster.why(wait.text, each.location, each.project))
        decision.waits[each.job] = added[key]


def _place(cluster: ClusterCapacity, decision: QueueDecision, result: PassResult, now: datetime) -> None:
    if not decision.placed:
        return
    _ask_for_parameters([each.job for each, _ in decision.placed if each.undrawn], decision, result, now)
    starting = [(each, placements) for each, placements in decision.placed if not each.undrawn]
    if not starting:
        return
    ids, projects = [each.job for each, _ in starting], {each.project for each, _ in starting}
    with snapshot.locked_ahead(ids, projects):
        _write_placements(_lock_placed(starting, result, now), cluster, decision, result, now)


def _lock_placed(
    placed: Sequence[tuple[WaitingJob, tuple[Placement, ...]]], result: PassResult, now: datetime
) -> list[PlacedJob]:
    """Lock the rows of these jobs. Jobs that were cancelled meanwhile are left out, and so are those that cannot be
    read."""
    ids = [each.job for each, _ in placed]
    jobs = {job.pk: job for job in snapshot.lock_jobs(ids) if queue_snapshot.is_waiting(job)}
    found = []
    for each, placements in placed:
        job = jobs.get(each.job)
        if job is None:
            result.refused.add(each.job)
            continue
        try:
            found.append(PlacedJob(job, snapshot.spec_of(job), placements, is_pinned(each)))
        except Exception as problem:
            faulty_jobs.set_aside(job, problem, "Job %s cannot be read, and waits.", now)
            result.refused.add(each.job)
    return found


def _ask_for_parameters(
    undrawn: list[int], decision: QueueDecision, result: PassResult, now: datetime
) -> None:
    """A trial without parameters is about to get its place: now they are drawn, with all that is known by now. Until
    then it keeps its turn, and the next passes find the place for it again.

    Mostly that is a matter of milliseconds: the reason to wait is written only where a later pass finds it undrawn."""
    if not undrawn:
        return
    found = _trials_of(jobs=undrawn)
    decision.waits.update({job: DRAWING for job, _, wanted_at in found if wanted_at is not None})
    if unwanted := [job for job, _, wanted_at in found if wanted_at is None]:
        _are_wanted(jobs=unwanted, wanted_at=now)
    hints.tuning({study for _, study, _ in found} - {result.drawn_by_caller})


def _write_placements(
    placed: Sequence[PlacedJob],
    cluster: ClusterCapacity,
    decision: QueueDecision,
    result: PassResult,
    now: datetime,
) -> None:
    """Write all placements at once. If that fails, write them one by one, so that only the faulty job waits."""
    if not placed:
        return
    try:
        with AllOrNothing() as block:
            result.hosts |= _insert_runs(placed, cluster, now, block)
    except DATABASE_UNAVAILABLE:
        raise
    except Exception:
        for each in placed:
            _write_one_placement(each, cluster, decision, result, now)


def _write_one_placement(
    each: PlacedJob, cluster: ClusterCapacity, decision: QueueDecision, result: PassResult, now: datetime
) -> None:
    try:
        with AllOrNothing(one_of_many=True) as block:
            result.hosts |= _insert_runs([each], cluster, now, block)
    except IntegrityError as problem:
        log.warning("Job %s was refused its place and is offered again: %s", each.job.pk, problem)
    except DATABASE_UNAVAILABLE:
        raise
    except Exception as problem:
        faulty_jobs.set_aside(each.job, problem, "Job %s cannot be given its place, and waits.", now)
        decision.waits[each.job.pk] = OUR_FAULT
        result.refused.add(each.job.pk)


def _insert_runs(
    placed: Sequence[PlacedJob], cluster: ClusterCapacity, now: datetime, block: AllOrNothing
) -> set[int]:
    ids = [each.job.pk for each in placed]
    with write_together():
        block.begin()
        runs, transitions = _first_runs(placed, cluster, now)
        due_at = now + timedelta(seconds=LOOK_AGAIN_S)
        updated = _placed.counted_later(jobs=ids, updated_at=now, due_at=due_at)
        _starting(jobs=ids)
        claims.save(runs, now)
        job_history.save(transitions)
    claims.expect_outputs(runs, now)
    if pinned := [each.job.pk for each in placed if each.pinned]:
        QueuePin.objects.filter(job__in=pinned).delete()
    if updated() != len(ids):
        raise IntegrityError("A job was changed under its lock.")
    claims.ask_for_preparations(runs, now)
    for each in placed:
        announce.hints([f"job:{each.job.pk}", f"jobs:{each.job.project.name}"])
    return {run.host_id for run in runs}


def _first_runs(
    placed: Sequence[PlacedJob], cluster: ClusterCapacity, now: datetime
) -> tuple[list[Run], list[Transition]]:
    """The runs of these jobs and the lines of their histories, not yet saved."""
    found = snapshot.replicas_of([each.job.pk for each in placed])
    replicas = {pk: {each.name: each for each in of} for pk, of in found.items()}
    runs, transitions = [], []
    for each in placed:
        of_job = replicas[each.job.pk]
        assignments = [
            Assignment(
                of_job[place.replica],
                cluster.login(place.host_id, each.job.project_id),
                place.gpus,
                place.port,
            )
            for place in each.placements
        ]
        runs += claims.first_runs(each.job, each.spec, assignments, now)
        transitions += job_history.of_placement(each.job, assignments, now)
    return runs, transitions


def _preempt(decision: QueueDecision, result: PassResult, now: datetime) -> None:
    """Mark the SPOT jobs that lose their place to another job. advance.py decides what follows."""
    if not decision.preempted:
        return
    jobs = Job.every.in_bulk({pk for one in decision.preempted for pk in (one.job, one.by)})
    may = Job.every.filter(
        state__in=(JobState.PENDING, JobState.RUNNING), outcome="", cancel_requested_at=None, preempted_by=""
    )
    for one in sorted(decision.preempted, key=lambda each: each.job):
        why = said(
            "Makes room for {job}: a SPOT job runs while nobody else needs its place. It counts against nothing.",
            job=_describe(jobs[one.by], jobs[one.job]),
        )
        if may.filter(pk=one.job).update(
            preempted_by=why, version=F("version") + 1, updated_at=now, due_at=now
        ):
            result.preempted.add(one.job)


def _describe(job: Job, to: Job) -> str:
    """The job as the owner of `to` may know it: people of another project do not learn which job it is, or whose."""
    if job.project_id != to.project_id:
        return said("a job of another project")
    return said("job {id}, {name}, of {owner}", id=job.pk, name=job.display_name, owner=job.owner_name)
