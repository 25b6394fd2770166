"""Replicas that must leave their hosts: those that are emptied, and those that were declared gone.

For each job all replicas that must leave get places elsewhere at once, before anything of it is stopped; so a job is
never stopped into nothing. A place is a run that is *held*: it has its claims, and is started when the run that it
follows is closed (rules/decide.py). Without room a job goes on where it is. At the deadline of a drain by force it goes
back to the queue whole; so it does at once when one of its hosts is gone, because it cannot go on.

This is done under the scheduler's lock, before waiting jobs are placed, in a transaction of its own: jobs are locked in
the order of their ids.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import F, Q, QuerySet

from agents.hosts import host_history
from agents.infra.clock import Clock
from agents.models import Host, HostStatus
from jobs.lifecycle import claims, host_maintenance, snapshot
from jobs.lifecycle.advance import advance_quietly
from jobs.lifecycle.host_maintenance import maintenance_of
from jobs.lifecycle.snapshot import SILENT, Rows
from jobs.models import HostMaintenance, Job, Replica, Run
from jobs.rules.lifecycle.plan import TRAINYARD
from jobs.rules.lifecycle.states import JobState, ReplicaState, RunPhase
from jobs.rules.scheduling.placement import NoCapacity, Placement, Placer, ReplicaRequest
from jobs.scheduling import capacity, pass_lock
from jobs.scheduling.capacity import LocationCapacity
from jobs.wake import announce

log = logging.getLogger(__name__)

PLACED = (JobState.PENDING, JobState.RUNNING)


@dataclass(slots=True)
class MoveResult:
    """What one pass over the jobs that must leave has changed."""

    decide: set[int] = field(default_factory=set)


def hosts_to_leave() -> QuerySet[Host]:
    """Hosts about which there is something to do here; asked at each look at the queue."""
    lost = Run.objects.filter(
        declared_lost_at__isnull=False, replica__state=ReplicaState.STARTING, job__state__in=PLACED
    )
    return Host.objects.filter(
        Q(maintenance__drain_at__isnull=False, maintenance__drained_at=None)
        | Q(maintenance__gone_at__isnull=False, status=HostStatus.UP)
        | Q(pk__in=lost.order_by().values("host"))
    )


def move_replicas(clock: Clock) -> frozenset[int]:
    """Find places for whoever must leave; the hosts on which something else is wanted now."""
    done = MoveResult()
    with transaction.atomic():
        pass_lock.lock_pass()
        now = clock.now()
        ground = capacity.read_capacity()
        placer = Placer(ground.views, capacity.ports())
        for rows in snapshot.lock(_leaving()):
            _offer(rows, placer, ground, done, now)
        _note_empty(now)
        _welcome_back(now)
    return advance_quietly(sorted(done.decide), clock).hosts if done.decide else frozenset()


def _leaving() -> set[int]:
    """Jobs that have a run on a host which it must leave. A held one is on its way already."""
    drained = Q(host__maintenance__drain_at__isnull=False) & ~Q(phase=RunPhase.CLOSED)
    runs = Run.objects.filter(
        drained | Q(declared_lost_at__isnull=False),
        attempt=F("job__attempt"),
        held=False,
        job__state__in=PLACED,
        job__outcome="",
        job__cancel_requested_at=None,
        job__preempted_by="",
    )
    return set(runs.order_by().values_list("job", flat=True))


@dataclass(frozen=True, slots=True)
class LeavingReplica:
    """One replica that must leave, and its run there."""

    replica: Replica
    run: Run

    @property
    def gone(self) -> bool:
        return self.run.declared_lost_at is not None

    @property
    def why(self) -> str:
        return self.run.message if self.gone else host_maintenance.draining_text(self.run.host)


def _offer(rows: Rows, placer: Placer, ground: LocationCapacity, done: MoveResult, now: datetime) -> None:
    job = rows.job
    if job.state not in PLACED or job.outcome or job.cancel_requested_at or job.preempted_by:
        return  # it was changed while its lock was waited for
    if any(run.held and run.phase != RunPhase.CLOSED for run in rows.runs):
        return
    leavers = _leavers(rows)
    if not leavers:
        return
    silent = sorted(
        {run.host.name for run in rows.runs if run.phase != RunPhase.CLOSED and run.host.status in SILENT}
    )
    if silent:
        _wait(job, f"Nothing of it can be moved: {', '.join(silent)} does not answer.", now)
        return
    answer = _seats(rows, leavers, placer, ground)
    if isinstance(answer, NoCapacity):
        _no_room(job, leavers, answer.text, done, now)
    elif _hold(rows, leavers, answer, ground, now):
        done.decide.add(job.pk)


def _leavers(rows: Rows) -> list[LeavingReplica]:
    latest: dict[int, Run] = {}
    for run in rows.runs:
        if run.attempt == rows.job.attempt and not run.held:
            latest[run.replica_id] = run  # they come in the order of their numbers
    found = [LeavingReplica(replica, latest[replica.pk]) for replica in rows.replicas if replica.pk in latest]
    return [each for each in found if _must_leave(each)]


def _must_leave(each: LeavingReplica) -> bool:
    if each.gone:
        return each.replica.state == ReplicaState.STARTING  # it was decided that it comes back
    return maintenance_of(each.run.host).drain_at is not None and not RunPhase(each.run.phase).over


def _seats(
    rows: Rows, leavers: list[LeavingReplica], placer: Placer, ground: LocationCapacity
) -> tuple[Placement, ...] | NoCapacity:
    job = rows.job
    needs = {
        request.replica: request.needs
        for request in capacity.replica_requests(snapshot.spec_of(job), snapshot.types_of(job))
    }
    requests = tuple(ReplicaRequest(each.replica.name, needs[each.replica.name]) for each in leavers)
    return placer.place(requests, ground.location(job.location_name), spread=job.pk)


def _no_room(job: Job, leavers: list[LeavingReplica], lacking: str, done: MoveResult, now: datetime) -> None:
    gone = [each for each in leavers if each.gone]
    late = [each for each in leavers if _is_forced(each.run.host, now)]
    if not gone and not late:
        hosts = ", ".join(sorted({each.run.host.name for each in leavers}))
        _wait(job, f"Cannot leave {hosts} yet. {lacking}", now)
        return
    whys = "; ".join(dict.fromkeys(each.why for each in gone or late))
    names = ", ".join(each.replica.name for each in (gone or late)[:8])
    again = "the whole job waits for a place again, which counts against nothing"
    why = f"{whys}. There was no room elsewhere for {names}: {again}."
    Job.every.filter(pk=job.pk).update(
        preempted_by=why, reason="", version=F("version") + 1, updated_at=now, due_at=now
    )
    done.decide.add(job.pk)


def _is_forced(host: Host, now: datetime) -> bool:
    maintenance = maintenance_of(host)
    until = maintenance.drain_until
    return maintenance.drain_force and until is not None and until <= now


def _wait(job: Job, why: str, now: datetime) -> None:
    if job.reason != why:
        Job.every.filter(pk=job.pk).update(reason=why, version=F("version") + 1, updated_at=now)
        announce.hints([f"job:{job.pk}"])


def _hold(
    rows: Rows,
    leavers: list[LeavingReplica],
    seats: tuple[Placement, ...],
    ground: LocationCapacity,
    now: datetime,
) -> bool:
    job = rows.job
    seat_of = {seat.replica: seat for seat in seats}
    runs = []
    for each in leavers:
        seat = seat_of[each.replica.name]
        chair = claims.Assignment(each.replica, ground.hosts[seat.host_id], seat.gpus, seat.port)
        runs.append(claims.hold_place(job, each.run, chair, each.why, now))
    try:
        with transaction.atomic():
            claims.save(runs, now)
    except IntegrityError as problem:
        log.warning("Job %s was refused its new places and is offered others: %s", job.pk, problem)
        return False
    Job.every.filter(pk=job.pk).update(reason="", version=F("version") + 1, updated_at=now, due_at=now)
    return True


def _note_empty(now: datetime) -> None:
    """A drained host is empty: that is what its admin waits for."""
    held = Run.objects.filter(released_at=None).values("host")
    draining = HostMaintenance.objects.filter(drain_at__isnull=False, drained_at=None, host__retired_at=None)
    for each in draining.exclude(pk__in=held).order_by("pk"):
        still = HostMaintenance.objects.filter(pk=each.pk, drained_at=None, drain_at=each.drain_at)
        if still.update(drained_at=now):
            host_history.record(each.pk, "drained", "Nothing runs here any more.", TRAINYARD, now)
            announce.hints(["hosts", f"host:{each.pk}"])


def _welcome_back(now: datetime) -> None:
    """A host that was declared gone is one of us again when it has proved that nothing of what was given up lives."""
    unproved = Run.objects.filter(declared_lost_at__isnull=False, proved_at=None).values("host")
    gone = Host.objects.filter(maintenance__gone_at__isnull=False, status=HostStatus.UP)
    for host in gone.exclude(pk__in=unproved).order_by("pk"):
        HostMaintenance.objects.filter(pk=host.pk).update(gone_at=None, gone_by="")
        words = "It answers, and nothing of what was given up lives there. It is in service again."
        host_history.record(host.pk, "back", words, TRAINYARD, now)
        announce.hints(["hosts", f"host:{host.pk}"])
