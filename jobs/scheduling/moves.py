"""Moving replicas off hosts that are drained or were declared gone.

All replicas of a job that must leave get places elsewhere together, before any of them is stopped: so a job is never
stopped without a place to go to. A new place is a run that is *held*: it has its claims, and is started when the run
that it follows is closed (rules/lifecycle/decide.py). Without free capacity the job goes on where it is. At the
deadline of a drain by force the whole job goes back to the queue. If one of its hosts is gone, it does so at once,
because it cannot go on.

This happens under the lock of the scheduling pass, before waiting jobs are placed, in a transaction of its own. Jobs
are locked in the order of their ids.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import F, Q, QuerySet

from agents.hosts import host_history
from agents.infra.clock import Clock
from agents.infra.texts import join, said
from agents.models import Host, HostStatus
from jobs.lifecycle import claims, host_maintenance, snapshot
from jobs.lifecycle.advance import advance_quietly
from jobs.lifecycle.host_maintenance import maintenance_of
from jobs.lifecycle.snapshot import UNREACHABLE_STATUSES, Rows
from jobs.models import HostMaintenance, Job, Replica, Run
from jobs.projects import locations
from jobs.rules.lifecycle.plan import TRAINYARD
from jobs.rules.lifecycle.states import JobState, ReplicaState, RunPhase
from jobs.rules.scheduling.placement import NoCapacity, Placement, Placer, ReplicaRequest
from jobs.rules.spec.image_aliases import as_kept
from jobs.rules.spec.runtime_choice import engines_of
from jobs.scheduling import capacity, pass_lock
from jobs.scheduling.capacity import ClusterCapacity
from jobs.wake import announce

log = logging.getLogger(__name__)

PLACED = (JobState.PENDING, JobState.RUNNING)


@dataclass(slots=True)
class MoveResult:
    """The jobs that are to be decided about after a pass over the jobs that must move."""

    decide: set[int] = field(default_factory=set)


def hosts_to_leave() -> QuerySet[Host]:
    """Hosts for which `move_replicas` has something to do. Every look at the queue asks this."""
    lost = Run.objects.filter(
        declared_lost_at__isnull=False, replica__state=ReplicaState.STARTING, job__state__in=PLACED
    )
    return Host.objects.filter(
        Q(maintenance__drain_at__isnull=False, maintenance__drained_at=None)
        | Q(maintenance__gone_at__isnull=False, status=HostStatus.UP)
        | Q(pk__in=lost.order_by().values("host"))
    )


def move_replicas(clock: Clock) -> frozenset[int]:
    """Find places for the replicas that must leave. Returns the hosts on which something else is wanted now."""
    result = MoveResult()
    with transaction.atomic():
        pass_lock.lock_pass()
        now = clock.now()
        cluster = capacity.read_capacity()
        placer = Placer(cluster.views, capacity.ports())
        for rows in snapshot.lock(_jobs_to_move()):
            _move_job(rows, placer, cluster, result, now)
        _record_drained_hosts(now)
        _return_gone_hosts(now)
    return advance_quietly(sorted(result.decide), clock).hosts if result.decide else frozenset()


def _jobs_to_move() -> set[int]:
    """Jobs with a run that must leave its host. A job with a held run is on its way already."""
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
    """A replica that must leave its host, and its run there."""

    replica: Replica
    run: Run

    @property
    def gone(self) -> bool:
        return self.run.declared_lost_at is not None

    @property
    def why(self) -> str:
        return self.run.message if self.gone else host_maintenance.draining_text(self.run.host)


def _move_job(
    rows: Rows, placer: Placer, cluster: ClusterCapacity, result: MoveResult, now: datetime
) -> None:
    job = rows.job
    if job.state not in PLACED or job.outcome or job.cancel_requested_at or job.preempted_by:
        return  # it was changed while this process waited for its lock
    if any(run.held and run.phase != RunPhase.CLOSED for run in rows.runs):
        return
    leaving = _leaving_replicas(rows)
    if not leaving:
        return
    unreachable = sorted(
        {
            run.host.name
            for run in rows.runs
            if run.phase != RunPhase.CLOSED and run.host.status in UNREACHABLE_STATUSES
        }
    )
    if unreachable:
        _wait(job, _cannot_move(unreachable), now)
        return
    answer = _placements(rows, leaving, placer, cluster)
    if isinstance(answer, NoCapacity):
        _handle_no_capacity(job, leaving, answer.text, result, now)
    elif _hold_places(rows, leaving, answer, cluster, now):
        result.decide.add(job.pk)


def _leaving_replicas(rows: Rows) -> list[LeavingReplica]:
    latest: dict[int, Run] = {}
    for run in rows.runs:
        if run.attempt == rows.job.attempt and not run.held:
            latest[run.replica_id] = run  # the rows come in the order of their numbers
    found = [LeavingReplica(replica, latest[replica.pk]) for replica in rows.replicas if replica.pk in latest]
    return [each for each in found if _must_leave(each)]


def _must_leave(each: LeavingReplica) -> bool:
    if each.gone:
        return each.replica.state == ReplicaState.STARTING  # advance.py has decided that it starts again
    return maintenance_of(each.run.host).drain_at is not None and not RunPhase(each.run.phase).over


def _placements(
    rows: Rows, leaving: list[LeavingReplica], placer: Placer, cluster: ClusterCapacity
) -> tuple[Placement, ...] | NoCapacity:
    job = rows.job
    location = cluster.location(job.location_name)
    if not cluster.bindings.serves(location, job.project_id):
        return NoCapacity(locations.waits_text(location, job.project.name))
    spec = as_kept(snapshot.spec_of(job), job.resolved)
    needs = {
        request.replica: request.needs for request in capacity.replica_requests(spec, snapshot.types_of(job))
    }
    requests = tuple(ReplicaRequest(each.replica.name, needs[each.replica.name]) for each in leaving)
    scope = cluster.scope(location, job.project_id, engines_of(spec))
    return placer.place(requests, scope, spread=job.pk)


def _handle_no_capacity(
    job: Job, leaving: list[LeavingReplica], lacking: str, result: MoveResult, now: datetime
) -> None:
    gone = [each for each in leaving if each.gone]
    late = [each for each in leaving if _is_forced(each.run.host, now)]
    if not gone and not late:
        hosts = ", ".join(sorted({each.run.host.name for each in leaving}))
        _wait(job, said("Cannot leave {hosts} yet. {why}", hosts=hosts, why=lacking), now)
        return
    why = said(
        "{why}. There was no room elsewhere for {replicas}: the whole job waits for a place again, which counts "
        "against nothing.",
        why=join("; ", list(dict.fromkeys(each.why for each in gone or late))),
        replicas=", ".join(each.replica.name for each in (gone or late)[:8]),
    )
    Job.every.filter(pk=job.pk).update(
        preempted_by=why, reason="", version=F("version") + 1, updated_at=now, due_at=now
    )
    result.decide.add(job.pk)


def _is_forced(host: Host, now: datetime) -> bool:
    maintenance = maintenance_of(host)
    until = maintenance.drain_until
    return maintenance.drain_force and until is not None and until <= now


def _cannot_move(hosts: Sequence[str]) -> str:
    return said("Nothing of it can be moved: {hosts} does not answer.", hosts=", ".join(hosts))


def _wait(job: Job, why: str, now: datetime) -> None:
    if job.reason != why:
        Job.every.filter(pk=job.pk).update(reason=why, version=F("version") + 1, updated_at=now)
        announce.hints([f"job:{job.pk}"])


def _hold_places(
    rows: Rows,
    leaving: list[LeavingReplica],
    placements: tuple[Placement, ...],
    cluster: ClusterCapacity,
    now: datetime,
) -> bool:
    job = rows.job
    placement_of = {placement.replica: placement for placement in placements}
    runs = []
    for each in leaving:
        placement = placement_of[each.replica.name]
        assignment = claims.Assignment(
            each.replica,
            cluster.login(placement.host_id, job.project_id),
            placement.gpus,
            placement.port,
        )
        runs.append(claims.hold_place(job, each.run, assignment, each.why, now))
    try:
        with transaction.atomic():
            claims.save(runs, now)
    except IntegrityError as problem:
        log.warning("Job %s was refused its new places and is offered others: %s", job.pk, problem)
        return False
    Job.every.filter(pk=job.pk).update(reason="", version=F("version") + 1, updated_at=now, due_at=now)
    return True


def _hosts_of(runs: QuerySet[Run]) -> Q:
    """The hosts of these runs, for rows whose key is a host. What runs on a login of a machine is the machine's too."""
    of_logins = runs.filter(host__machine__isnull=False)
    return Q(pk__in=runs.values("host")) | Q(pk__in=of_logins.values("host__machine"))


def _record_drained_hosts(now: datetime) -> None:
    """Record that a drained host is empty, with its further logins: its admin waits for that."""
    held = Run.objects.filter(released_at=None)
    draining = HostMaintenance.objects.filter(drain_at__isnull=False, drained_at=None, host__retired_at=None)
    for each in draining.exclude(_hosts_of(held)).order_by("pk"):
        still = HostMaintenance.objects.filter(pk=each.pk, drained_at=None, drain_at=each.drain_at)
        if still.update(drained_at=now):
            host_history.record(each.pk, "drained", said("Nothing runs here any more."), TRAINYARD, now)
            announce.hints(["hosts", f"host:{each.pk}"])


def _return_gone_hosts(now: datetime) -> None:
    """Take a host that was declared gone back into service, once it and its further logins have proved that none of
    the runs that were given up lives."""
    unproved = Run.objects.filter(declared_lost_at__isnull=False, proved_at=None)
    gone = Host.objects.filter(maintenance__gone_at__isnull=False, status=HostStatus.UP)
    for host in gone.exclude(_hosts_of(unproved)).order_by("pk"):
        HostMaintenance.objects.filter(pk=host.pk).update(gone_at=None, gone_by="")
        text = said("It answers, and nothing of what was given up lives there. It is in service again.")
        host_history.record(host.pk, "back", text, TRAINYARD, now)
        announce.hints(["hosts", f"host:{host.pk}"])
