"""Creating runs with their claims, and releasing claims. These functions only write rows; the caller owns the
transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings

from agents.hosts.data_address import address_for_data
from agents.infra import clock
from agents.infra.sql import InsertStatement, Parameter, SelectStatement, UpdateStatement
from agents.models import Gpu, Host
from jobs.lifecycle import snapshot
from jobs.models import GpuClaim, Job, Replica, Run
from jobs.outputs import ordering
from jobs.outputs.ordering import JobOutputs
from jobs.preparations import asking, brought, images, kinds, reasons
from jobs.preparations.cache_entries import INSTALL_LOG
from jobs.projects import usage
from jobs.rules.lifecycle.decide import timeout_left_s
from jobs.rules.metrics.log_lines import names_asked
from jobs.rules.spec import reduction
from jobs.rules.spec.cluster_variables import TRAINER_POOLS, cluster_environment
from jobs.rules.spec.custom_job import CustomJobSpec, Pool
from jobs.rules.spec.image_aliases import as_kept
from jobs.rules.spec.launchers import may_train_together
from jobs.rules.spec.machine_types import needs

_insert_run, _insert_claim = InsertStatement(Run), InsertStatement(GpuClaim)
# A host looks for connections to so many of the other replicas: those that train together all connect to the first.
MAX_PEERS = 64
# The parts of an order that need something on the host.
NEEDS = frozenset({"runtime", "code"})

_gpus = SelectStatement(
    lambda: Gpu.objects.filter(uuid__among=Parameter("uuids")).order_by().values_list("uuid", "pk")
)
_release_gpus = UpdateStatement(
    lambda: GpuClaim.objects.filter(run__among=Parameter("runs"), released_at=None), "released_at"
)
_release_runs = UpdateStatement(
    lambda: Run.objects.filter(pk__among=Parameter("runs"), released_at=None), "released_at"
)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The host on which one replica is to run, and what it holds there."""

    replica: Replica
    host: Host
    gpus: tuple[str, ...]
    port: int


def run_id(job: Job, replica: str, attempt: int, number: int) -> str:
    return f"{job.pk}-{replica}-a{attempt}-r{number}"


def first_runs(job: Job, spec: CustomJobSpec, assignments: Sequence[Assignment], now: datetime) -> list[Run]:
    """The first runs of all replicas of an attempt, not yet saved."""
    addresses = {
        assignment.replica.name: address(assignment.host, assignment.port) for assignment in assignments
    }
    types = snapshot.types_of(job)
    spec = _as_used(job, spec)
    pools = {name: pool for name, _, _, pool in spec.replicas()}
    outputs = ordering.of_job(job, spec)
    runs = []
    for assignment in assignments:
        pool = pools[assignment.replica.name]
        wanted = needs(pool.machine, types)
        run = Run(
            id=run_id(job, assignment.replica.name, job.attempt, 0),
            job=job,
            replica=assignment.replica,
            attempt=job.attempt,
            number=0,
            host=assignment.host,
            created_at=now,
            cpus=wanted.cpus,
            memory_mb=wanted.memory_mb,
            port=assignment.port,
            gpu_uuids=list(assignment.gpus),
        )
        run.order = _order(run, spec, pool, addresses, outputs, now)
        run.needed = kinds.needs_of(run, spec, pool)
        runs.append(run)
    return runs


def save(runs: Sequence[Run], now: datetime) -> None:
    """Insert runs and their claims. Raises IntegrityError if another run holds one of the GPUs or ports: the unique
    constraints guard claims a second time, after the scheduler."""
    uuids = [uuid for run in runs for uuid in run.gpu_uuids]
    ids: dict[str, int] = dict(_gpus(uuids=uuids)) if uuids else {}
    for run in runs:
        run.metrics_read = metrics_read(run.order)
    _insert_run.many(runs)
    _insert_claim.many([GpuClaim(gpu_id=ids[uuid], run=run) for run in runs for uuid in run.gpu_uuids])


def ask_for_preparations(runs: Sequence[Run], now: datetime) -> None:
    """Ask the hosts of these runs, which are in the database by now, for what the runs need there."""
    if needing := [(run, run.needed) for run in runs if run.needed]:
        asking.ask(needing, now)
    for run in runs:
        if run.follows:
            asking.ask_as(run.follows, run, now)


def expect_outputs(runs: Sequence[Run], now: datetime) -> None:
    """Note on which hosts these runs will write outputs, and let them wait where a host has to be filled before."""
    writing = [run for run in runs if run.order.get("outputs")]
    for job in {run.job_id: run.job for run in writing}.values():
        of_job = [run for run in writing if run.job_id == job.pk]
        ordering.expect(job, snapshot.spec_of(job), of_job, now)
        reasons.note(job.pk, now)


def metrics_read(order: Mapping[str, Any]) -> int | None:
    """Where its log is to be looked through from; None where the job does not ask for metrics in it."""
    return 0 if names_asked(order.get("env")) else None


def hold_place(job: Job, old: Run, assignment: Assignment, why: str, now: datetime) -> Run:
    """A held run on another host for the replica of `old`: it has its claims, and `start_held_run` starts it later."""
    number = Run.objects.filter(replica=assignment.replica, attempt=old.attempt).count()
    return Run(
        id=run_id(job, assignment.replica.name, old.attempt, number),
        job=job,
        replica=assignment.replica,
        attempt=old.attempt,
        number=number,
        host=assignment.host,
        created_at=now,
        cpus=old.cpus,
        memory_mb=old.memory_mb,
        port=assignment.port,
        gpu_uuids=list(assignment.gpus),
        order={},
        held=True,
        held_why=why,
    )


def start_held_run(run: Run, spec: CustomJobSpec, addresses: Mapping[str, str], now: datetime) -> None:
    """Let the held run start, with the addresses that the other replicas have now."""
    spec = _as_used(run.job, spec)
    pool = next(pool for name, _, _, pool in spec.replicas() if name == run.replica.name)
    run.order = _order(run, spec, pool, addresses, ordering.of_job(run.job, spec), now)
    Run.objects.filter(pk=run.pk).update(held=False, order=run.order, metrics_read=metrics_read(run.order))
    if needed := kinds.needs_of(run, spec, pool):
        asking.ask([(run, needed)], now)
    expect_outputs([run], now)


def restart_run(
    job: Job,
    spec: CustomJobSpec,
    old: Run,
    number: int,
    now: datetime,
    addresses: Mapping[str, str] | None = None,
) -> Run:
    """The next run of a replica: same host, same address. It takes over the claims in this transaction.

    `addresses` is given if the addresses of other replicas have changed.
    """
    order: Mapping[str, Any] = Run.objects.values_list("order", flat=True).get(pk=old.pk)
    new = Run(
        id=run_id(job, old.replica.name, old.attempt, number),
        job=job,
        replica=old.replica,
        attempt=old.attempt,
        number=number,
        host=old.host,
        created_at=now,
        cpus=old.cpus,
        memory_mb=old.memory_mb,
        port=old.port,
        gpu_uuids=old.gpu_uuids,
    )
    if NEEDS & order.keys():
        new.follows = old.pk
    new.order = {**order, "mark": new.pk, "timeout_s": _timeout_s(spec, job, now)}
    new.order.pop(INSTALL_LOG, None)
    if addresses is not None:
        new.order["env"] = _environment(new, spec, addresses)
        new.order["peers"] = _peers(new, spec, addresses)
    return new


def release(run_ids: Collection[str], now: datetime) -> None:
    """Release the claims of these runs. Only for runs whose host has proved that nothing of them is left."""
    usage.record(run_ids, now)
    _release_gpus(runs=run_ids, released_at=now)
    _release_runs(runs=run_ids, released_at=now)


def address(host: Host, port: int) -> str:
    where = address_for_data(host)
    return f"[{where}]:{port}" if ":" in where else f"{where}:{port}"


def _as_used(job: Job, spec: CustomJobSpec) -> CustomJobSpec:
    """The spec with the images that stand for others, as it was when the job was submitted."""
    return as_kept(spec, job.resolved)


def _timeout_s(spec: CustomJobSpec, job: Job, now: datetime) -> float:
    return timeout_left_s(spec, job.started_at, now, clock.unsure_since())


def _environment(run: Run, spec: CustomJobSpec, addresses: Mapping[str, str]) -> dict[str, str]:
    return cluster_environment(
        spec,
        job_id=str(run.job_id),
        project=run.job.project.name,
        location=run.job.location_name,
        replica=run.replica.name,
        addresses=addresses,
        host_name=run.host.name,
        gpus=len(run.gpu_uuids),
        trial=run.job.trial,
    )


def _order(
    run: Run,
    spec: CustomJobSpec,
    pool: Pool,
    addresses: Mapping[str, str],
    outputs: JobOutputs | None,
    now: datetime,
) -> dict[str, Any]:
    """What the runner gets to start this run (agents/README.md, frame start)."""
    return {
        # Of an image that brings its own command there is none; the runner wants a word.
        "command": list(pool.task.argv) or [pool.task.image],
        "env": _environment(run, spec, addresses),
        "cpus": run.cpus,
        "gpus": run.gpu_uuids,
        "port": run.port,
        # All runs of a replica in an attempt share a directory: a restart finds what the run before it wrote.
        "work_key": f"{run.job_id}-{run.replica.name}-a{run.attempt}",
        "grace_s": settings.TRAINYARD.grace_s,
        "timeout_s": _timeout_s(spec, run.job, now),
        "mark": run.pk,
        "memory_mb": run.memory_mb or None,
        "log_budget_mb": settings.TRAINYARD.log_budget_mb,
        "web_access": spec.enable_web_access,
        "pid_namespace": run.host.pid_namespaces,
        "address": address_for_data(run.host),
        **(outputs.order(pool) if outputs else {}),
        **({"reduction": role} if (role := reduction.role_of(spec, run.replica.pool)) else {}),
        **images.order_parts(run.job, run.replica.pool, pool),
        **({"peers": peers} if (peers := _peers(run, spec, addresses)) else {}),
        **brought.order_parts(run.job, run.replica.pool, pool),
        # The dispatcher adds their values to `env` when it sends the order (jobs/secrets/of_jobs.py).
        **({"secrets": [each.name for each in pool.task.secrets]} if pool.task.secrets else {}),
    }


def _peers(run: Run, spec: CustomJobSpec, addresses: Mapping[str, str]) -> list[str]:
    """The addresses of the other trainers, the primary's first, where the host is to look for connections to them."""
    trainers = [name for name, number, _, _ in spec.replicas() if number in TRAINER_POOLS]
    if run.replica.name not in trainers or not may_train_together(spec, bool(run.gpu_uuids)):
        return []
    return [addresses[name] for name in trainers if name != run.replica.name][:MAX_PEERS]
