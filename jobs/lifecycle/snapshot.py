"""Reads the rows of jobs and turns them into the views that the rules decide from.

`lock` locks the jobs' rows first, in the order of their ids, and reads the facts afterwards. So if two processes decide
about one job, the second sees at least the facts that the first saw, and never older ones.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from django.conf import settings
from django.db.models import F, Q

from agents.infra import clock
from agents.infra.sql import Parameter, PartialModel, SelectStatement, read_ahead
from agents.models import Host, HostStatus
from jobs.lifecycle import host_maintenance
from jobs.models import Job, Project, Replica, Run
from jobs.rules.lifecycle.states import TERMINAL, FlagName, JobState, ReplicaState, RunPhase
from jobs.rules.lifecycle.views import Flag, JobView, Outcome, ReplicaView, RunView
from jobs.rules.spec.custom_job import CustomJobSpec
from jobs.rules.spec.machine_types import NO_TYPES, Needs, Types
from jobs.rules.spec.parse import parse_spec

# Nothing is known about the runs on a host with such a status, and nothing may be concluded about them.
UNREACHABLE_STATUSES = frozenset(
    {HostStatus.UNREACHABLE, HostStatus.AUTH_FAILED, HostStatus.BLOCKED, HostStatus.MISBEHAVING}
)
_JOB, _PROJECT, _REPLICA = PartialModel(Job), PartialModel(Project), PartialModel(Replica)
# Without the columns that no decision needs; `order` alone can be a megabyte.
_RUN = PartialModel(Run, without=("order", "log_proof", "log_digest_host", "log_digest_here"))
_HOST = PartialModel(
    Host,
    only=(
        "id",
        "name",
        "address",
        "data_address",
        "found_address",
        "status",
        "status_since",
        "clock_offset_s",
        "boot_id",
        "monotonic_offset_s",
        "monotonic_at",
    ),
)
_HOST_OF_RUN = [f"host__{name}" for name in (*_HOST.names, *host_maintenance.COLUMNS)]
_lock = SelectStatement(
    lambda: (
        Job.every.select_for_update(no_key=True)
        .filter(pk__among=Parameter("ids"))
        .order_by("pk")
        .values_list(*_JOB.names)
    )
)
# Only the locks, for code that writes to the rows without reading them.
hold_jobs = SelectStatement(
    lambda: (
        Job.every.select_for_update(no_key=True)
        .filter(pk__among=Parameter("ids"))
        .order_by("pk")
        .values_list("pk")
    )
)
lock_runs = SelectStatement(
    lambda: (
        Run.objects.select_for_update(no_key=True)
        .filter(pk__among=Parameter("ids"))
        .order_by("pk")
        .values_list("pk")
    )
)
_projects = SelectStatement(
    lambda: Project.objects.filter(pk__among=Parameter("ids")).order_by().values_list(*_PROJECT.names)
)
_replicas = SelectStatement(
    lambda: (
        Replica.objects.filter(job__among=Parameter("jobs"))
        .order_by("job", "pool", "index")
        .values_list(*_REPLICA.names)
    )
)
_runs = SelectStatement(
    lambda: (
        Run.objects.filter(
            Q(attempt=F("job__attempt")) | ~Q(phase=RunPhase.CLOSED) | Q(released_at=None),
            job__among=Parameter("jobs"),
        )
        .order_by("attempt", "number", "pk")
        .values_list(*_RUN.names, *_HOST_OF_RUN)
    )
)


@dataclass(frozen=True, slots=True)
class Rows:
    """A job with its replicas, the runs of its attempt, and older runs that are not closed or still hold something."""

    job: Job
    replicas: tuple[Replica, ...]
    runs: tuple[Run, ...]


def lock(ids: Collection[int]) -> list[Rows]:
    """Lock these jobs until the transaction ends, and read them. Ids without a job are left out."""
    return read(lock_jobs(ids))


@contextmanager
def locked_ahead(jobs: Collection[int], projects: Collection[int]) -> Iterator[None]:
    """Lock these jobs and read them with their replicas and projects, for the functions of this module that are called
    in the block."""
    with read_ahead({_lock: {"ids": jobs}, _replicas: {"jobs": jobs}, _projects: {"ids": set(projects)}}):
        yield


def lock_jobs(ids: Collection[int]) -> list[Job]:
    jobs = [_JOB.build(row) for row in _lock(ids=ids)]
    projects = {row[0]: _PROJECT.build(row) for row in _projects(ids={job.project_id for job in jobs})}
    for job in jobs:
        job.project = projects[job.project_id]
    return jobs


def read(jobs: Sequence[Job]) -> list[Rows]:
    """The replicas and runs of these jobs as they are now, by two queries."""
    by_id = {job.pk: job for job in jobs}
    replicas = replicas_of(by_id)
    runs: dict[int, list[Run]] = defaultdict(list)
    for row in _runs(jobs=by_id):
        of_run, of_host = row[: len(_RUN.names)], row[len(_RUN.names) :]
        run = _RUN.build(of_run)
        run.host = _HOST.build(of_host[: len(_HOST.names)])
        host_maintenance.attach(run.host, of_host[len(_HOST.names) :])
        runs[run.job_id].append(run)
    return [Rows(job, tuple(replicas[job.pk]), tuple(runs[job.pk])) for job in jobs]


def replicas_of(jobs: Collection[int]) -> dict[int, list[Replica]]:
    found: dict[int, list[Replica]] = defaultdict(list)
    for row in _replicas(jobs=jobs):
        replica = _REPLICA.build(row)
        found[replica.job_id].append(replica)
    return found


def view_of(rows: Rows) -> JobView:
    job = rows.job
    names = {replica.pk: replica.name for replica in rows.replicas}
    decided = (run for run in rows.runs if run.attempt == job.attempt or run.phase != RunPhase.CLOSED)
    return JobView(
        id=str(job.pk),
        state=JobState(job.state),
        version=job.version,
        spec=spec_of(job),
        attempt=job.attempt,
        job_retries=job.job_retries,
        internal_tries=job.internal_tries,
        created_at=job.created_at,
        started_at=job.started_at,
        cancel_requested_at=job.cancel_requested_at,
        cancel_requested_by=job.cancel_requested_by,
        outcome=_outcome(job),
        replicas=tuple(_replica(replica) for replica in rows.replicas),
        runs=tuple(_run(run, names[run.replica_id]) for run in decided),
        flags=flags_of(job),
        due_at=job.due_at,
        queued_at=job.queued_at,
        quota_since=job.quota_since,
        quota_s=job.quota_s,
        location=job.location_name,
        clock_unsure_since=clock.unsure_since(),
        start_limit_s=settings.TRAINYARD.start_s,
        preempted=job.preempted_by,
        cancel_reason=job.cancel_reason,
        stall_after_s=settings.TRAINYARD.stall_s,
        idle_after_s=60.0 * (job.project.idle_minutes or 0),
        unconnected_after_s=settings.TRAINYARD.unconnected_s,
        retry_wait_s=settings.TRAINYARD.retry_wait_s,
        rests_until=job.rests_until,
    )


def flags_of(job: Job) -> tuple[Flag, ...]:
    return tuple(
        Flag(FlagName(flag["flag"]), datetime.fromisoformat(flag["since"]), flag["text"])
        for flag in job.flags
    )


def spec_of(job: Job) -> CustomJobSpec:
    own = json.dumps(job.machine_types, sort_keys=True) if job.machine_types else ""
    return _parsed(json.dumps(job.spec, sort_keys=True), own)


def types_of(job: Job) -> Types:
    """The admins' machine types that the job asks for, as they were when it was submitted."""
    return {name: Needs(**kept) for name, kept in job.machine_types.items()}


@lru_cache(maxsize=512)
def _parsed(document: str, own: str) -> CustomJobSpec:
    """Cached: a job is decided about many times, and its spec never changes."""
    types = {name: Needs(**kept) for name, kept in json.loads(own).items()} if own else NO_TYPES
    return parse_spec(json.loads(document), types)


def _outcome(job: Job) -> Outcome | None:
    if job.outcome:
        return Outcome(JobState(job.outcome), job.error_code or 0, job.error_message)
    return Outcome(JobState(job.state)) if job.state in TERMINAL else None


def _replica(replica: Replica) -> ReplicaView:
    state = ReplicaState(replica.state)
    return ReplicaView(replica.name, replica.pool, replica.index, state, replica.restarts)


def _run(run: Run, replica: str) -> RunView:
    return RunView(
        id=run.pk,
        replica=replica,
        attempt=run.attempt,
        number=run.number,
        host=run.host.name,
        phase=RunPhase(run.phase),
        created_at=run.created_at,
        started_at=run.started_at,
        ended_at=run.ended_at,
        closed_at=run.closed_at,
        measured_start=_measured_start(run),
        exit_code=run.exit_code,
        exit_signal=run.exit_signal,
        why=run.why,
        refusal=run.refusal,
        message=run.message,
        oom=run.oom,
        stop_wanted_at=run.stop_wanted_at,
        unreachable_since=_unreachable_since(run.host),
        survivors=len(run.survivors),
        seconds=run.seconds,
        log_missing=0 if run.log_complete_at else max(run.log_size - run.log_stored, 0),
        restart_at=run.restart_at,
        stop_grace_s=run.stop_grace_s,
        held=run.held,
        held_why=run.held_why,
        preparing=run.preparing,
        prepared_at=run.prepared_at,
        gone=run.declared_lost_at is not None,
        drain=host_maintenance.draining_text(run.host),
        gpus=bool(run.gpu_uuids),
        sampled_at=run.sampled_at,
        active_at=run.active_at,
        gpu_active_at=run.gpu_active_at,
        connected=run.connected,
    )


def _measured_start(run: Run) -> datetime | None:
    """When the run was started, by its host's monotonic clock and by ours since we have no doubt about it."""
    host, unsure = run.host, clock.unsure_since()
    if run.monotonic_started is None or host.monotonic_offset_s is None or host.monotonic_at is None:
        return None
    if run.boot_id != host.boot_id or (unsure is not None and host.monotonic_at < unsure):
        return None
    try:
        return datetime.fromtimestamp(host.monotonic_offset_s + run.monotonic_started, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _unreachable_since(host: Host) -> datetime | None:
    return host.status_since if host.status in UNREACHABLE_STATUSES else None
