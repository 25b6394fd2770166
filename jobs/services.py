"""What people ask of a job: submit it, cancel it, delete it. The pages, the REST API and the command line call these.

The caller has checked that the person may do it, and owns the transaction: nothing here commits it. Hints are sent
after the commit.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import F

from agents.infra.clock import Clock
from agents.infra.failpoints import failpoint
from agents.infra.refusals import Conflict, Exhausted, Refused, Unavailable
from agents.infra.sql import (
    InsertStatement,
    Parameter,
    PartialModel,
    SelectStatement,
    read_ahead,
    write_together,
)
from agents.infra.texts import said
from jobs.host_sync import samples
from jobs.lifecycle.advance import QUEUED_LOOK, advance
from jobs.logs import segments, storage
from jobs.metrics import points
from jobs.models import Job, JobLabel, Project, Replica, Run, Transition
from jobs.models.first_rows import DEFAULT
from jobs.outputs import submitting
from jobs.preparations import brought, images
from jobs.projects import locations, quotas
from jobs.recordings import store as recordings
from jobs.rules.lifecycle.states import TERMINAL, JobState, ReplicaState, RunPhase
from jobs.rules.scheduling.order import LABEL, NORMAL, PRIORITIES, priority_of
from jobs.rules.scheduling.quota import gpus_of
from jobs.rules.spec.custom_job import CustomJob, CustomJobSpec, to_document
from jobs.rules.spec.image_aliases import as_kept, with_images
from jobs.rules.spec.machine_types import Needs, Types, needs
from jobs.scheduling import capacity, container_variables, machine_types
from jobs.scheduling.image_aliases import images_used
from jobs.secrets import of_jobs
from jobs.secrets.of_jobs import Values
from jobs.wake import announce, hints

__all__ = [
    "Conflict",
    "Exhausted",
    "Refused",
    "TrialOfJob",
    "Unavailable",
    "cancel",
    "check_can_start",
    "check_priority",
    "check_request_id",
    "delete",
    "new_id",
    "read_together",
    "rerun",
    "submit",
]

MAX_REQUEST_ID = 200
ID_TRIES = 5

_JOB = PartialModel(Job)
_of_request = SelectStatement(
    lambda: (
        Job.every.filter(
            project=Parameter("project"), owner=Parameter("owner"), request_id=Parameter("request")
        )
        .order_by()
        .values_list(*_JOB.names)
    )
)
_insert_job, _insert_transition = InsertStatement(Job), InsertStatement(Transition)
_insert_replica, _insert_label = InsertStatement(Replica), InsertStatement(JobLabel)


@dataclass(frozen=True, slots=True)
class TrialOfJob:
    """The trial of a tuning job that a job is: its number, and the values of its secret variables."""

    number: int
    values: Values


def submit(
    project: Project,
    user: User,
    document: object,
    location: str,
    request_id: str | None,
    now: datetime,
    may_prioritize: bool = False,
    cloned_from: int | None = None,
    same_bytes: bool = True,
    trial: TrialOfJob | None = None,
) -> Job:
    """A new job, or the job that the same request made before. `cloned_from`: the job whose document this was.
    `same_bytes`: what that job has brought is brought again, where the document names the same. `trial`: it waits for
    its parameters. Raises InvalidDocument and the classes of refusals.py."""
    with read_together(project):
        return _submit(
            project, user, document, location, request_id, now, may_prioritize, cloned_from, same_bytes, trial
        )


def read_together(project: Project) -> AbstractContextManager[None]:
    """In this block, what each submit to the project asks for is read once, in one trip to the database."""
    of_project = {"project": project.pk}
    reads = {
        locations.BINDINGS: {},
        locations.NAMES: {},
        quotas.GPU_LIMITS: of_project,
        quotas.LOG_LIMIT: of_project,
        quotas.ANY_OF_QUEUE: of_project,
    }
    return read_ahead(reads, for_all=True)


def rerun(job: Job, user: User, request_id: str | None, now: datetime, may_prioritize: bool = False) -> Job:
    """Submit the document of this job once more, to the same project and location, with the same image, commit,
    archives and packages. Raises InvalidDocument where it has secret values that came with it: these have to be given
    again."""
    document = {"displayName": job.display_name, "labels": job.labels, "jobSpec": job.spec}
    return submit(job.project, user, document, job.location_name, request_id, now, may_prioritize, job.pk)


def _submit(
    project: Project,
    user: User,
    document: object,
    location: str,
    request_id: str | None,
    now: datetime,
    may_prioritize: bool,
    cloned_from: int | None,
    same_bytes: bool,
    trial: TrialOfJob | None,
) -> Job:
    location = (location or DEFAULT)[:63]
    if request_id is not None:
        check_request_id(request_id)
    before = _job_of_request(project, user, request_id) if request_id is not None else None
    if before is None:
        # Before the document is read: a refusal of the document names what the hosts of the location have.
        locations.check_serves(project, location)
    asked, types, engine = machine_types.read_with_engine(document, location)
    if before is not None:
        return _check_same_request(before, asked, location)
    if project.archived_at is not None:
        raise Refused(
            "project", said("Project {project} is archived: it takes no jobs any more.", project=project.name)
        )
    check_priority(asked, project, may_prioritize)
    if storage.is_disk_low():
        raise Unavailable(
            said("The disk of this console is nearly full. Nothing is accepted until there is room.")
        )
    copied = cloned_from if same_bytes else None
    resolved = _resolved(asked, project, location, copied, engine)
    used = as_kept(asked.job_spec, resolved)
    check_can_start(used, location, types, project, user)
    quotas.check_log_storage(project)
    quotas.check_queue(project, user)
    given = brought.with_git_credentials(asked)
    secrets_found = of_jobs.found(given, project, user, now) if trial is None else trial.values
    container_variables.check(used, secrets_found)
    submitting.make_bucket(project, asked.job_spec, location, user.get_username(), now)
    failpoint("submit.before")
    job = _insert(
        project, user, asked, types, location, request_id, now, secrets_found, cloned_from, resolved, trial
    )
    failpoint("submit.after")
    if trial is None:  # whoever asks for trials places them
        hints.schedule()
    announce.hint(f"jobs:{project.name}")
    return job


def check_brought(asked: CustomJob, project: Project, user: User, location: str, copied: int | None) -> None:
    """Raises InvalidDocument and Refused where secrets, code or packages of the job are not there. `copied`: the job
    whose bytes it brings again."""
    values = of_jobs.check(brought.with_git_credentials(asked), project, user)
    container_variables.check(as_kept(asked.job_spec, _resolved(asked, project, location, copied)), values)


def _resolved(
    asked: CustomJob, project: Project, location: str, copied: int | None, engine: str | None = None
) -> Mapping[str, object]:
    """`engine`: the one of pools that name none, if it is known already."""
    aliased = images_used(asked.job_spec, location)
    resolved = brought.resolve(asked.job_spec, project, location, copied, aliased)
    if engine is None:
        engine = machine_types.engine_of(with_images(asked.job_spec, aliased), location)
    resolved = {**resolved, **({"engine": engine} if engine else {})}
    return images.as_before(asked.job_spec, resolved, copied)


def check_priority(asked: CustomJob, project: Project, may_prioritize: bool) -> None:
    """Raises InvalidDocument for an unknown priority, and Refused for one that the project or the person may not ask
    for."""
    highest = project.highest_priority
    wanted = priority_of(asked.labels, highest)
    if wanted > PRIORITIES[highest]:
        raise Refused(
            f"labels.{LABEL}",
            said(
                "Jobs of project {project} have priority {highest} at most. Say {highest}, or leave it out; an "
                "admin of the deployment may allow more.",
                project=project.name,
                highest=highest,
            ),
        )
    if wanted > NORMAL and not may_prioritize:
        raise Refused(
            f"labels.{LABEL}", said("high is for admins of the project. Leave it out, or ask one of them.")
        )


def check_can_start(spec: CustomJobSpec, location: str, types: Types, project: Project, user: User) -> None:
    """Raises Refused for a job that could never start, neither on these hosts nor with these quotas."""
    never = capacity.refusal(spec, location, types)
    if never is not None:
        raise Refused(never.field, never.text)
    wanted = {number: needs(pool.machine, types) for number, pool in enumerate(spec.pools) if pool}
    gpus = gpus_of(wanted[pool] for _, pool, _, _ in spec.replicas())
    over = quotas.never_allowed(project, user, gpus)
    if over is not None:
        raise Refused(_field_of_most(spec, wanted, over.kind), over.text)


def _field_of_most(spec: CustomJobSpec, wanted: Mapping[int, Needs], kind: str) -> str:
    """The field of the pool that asks for the most GPUs of this type."""
    pools = {number: pool for number, pool in enumerate(spec.pools) if pool}
    asked = {
        number: pool.replica_count * wanted[number].gpus
        for number, pool in pools.items()
        if wanted[number].accelerator_type == kind
    }
    most = max(asked, key=lambda number: asked[number])
    about = "accelerator_count" if pools[most].machine.accelerator_count else "machine_type"
    return f"job_spec.worker_pool_specs[{most}].machine_spec.{about}"


def cancel(job: Job, actor: str, now: datetime, reason: str = "") -> None:
    """Cancel the job. The request is kept for ever and decided about at once. Cancelling it again, or after its end,
    changes nothing.

    `reason` becomes the job's error, for people who did not ask for the cancel.
    """
    clock = Clock(now)
    with transaction.atomic():
        asked = (
            Job.every.filter(pk=job.pk, cancel_requested_at=None)
            .exclude(state__in=TERMINAL)
            .update(
                cancel_requested_at=now,
                cancel_requested_by=actor[:150],
                cancel_reason=reason,
                version=F("version") + 1,
                updated_at=now,
                due_at=now,
            )
        )
        failpoint("cancel.before")
        if asked:
            advance([job.pk], clock)


def delete(job: Job, actor: str, now: datetime) -> None:
    """Hide a job that is over, and delete its logs. Its row and its history stay."""
    with transaction.atomic():
        row = Job.every.select_for_update(no_key=True, of=("self",)).get(pk=job.pk)
        if row.state not in TERMINAL:
            raise Refused("state", said("Only a job that is over can be deleted. Cancel it first."))
        runs = Run.objects.filter(job=row)
        # Whoever rolls or joins the pieces of these logs has ended, or begins after the commit and finds none.
        list(runs.select_for_update(no_key=True).order_by("pk").values_list("pk"))
        if runs.exclude(phase=RunPhase.CLOSED).exists():
            raise Refused(
                "state", said("A host that does not answer may still run part of it. Delete it after that.")
            )
        Job.every.filter(pk=row.pk, deleted_at=None).update(
            deleted_at=now, deleted_by=actor[:150], version=F("version") + 1, updated_at=now, due_at=None
        )
        # No more bytes of their logs are wanted. Intake that waits for one of these rows sees that there.
        runs.filter(log_complete_at=None).update(log_complete_at=now)
        ids = list(runs.values_list("pk", flat=True))
        segments.purge(ids)
        recordings.purge(ids)
        of_jobs.forget([row.pk])
        samples.purge(row)
        points.purge(row)
        hints.hosts(set(runs.filter(forgotten_at=None).values_list("host", flat=True)))
        hints.trials([row.pk])
        announce.hints([f"job:{row.pk}", f"jobs:{row.project.name}"])


def check_request_id(request_id: str) -> None:
    if not 0 < len(request_id) <= MAX_REQUEST_ID or not request_id.isprintable():
        raise Refused("request_id", said("must be 1 to {most} printable characters.", most=MAX_REQUEST_ID))


def _job_of_request(project: Project, user: User, request_id: str) -> Job | None:
    rows = _of_request(project=project.pk, owner=user.pk, request=request_id)
    return _JOB.build(rows[0]) if rows else None


def _check_same_request(before: Job, asked: CustomJob, location: str) -> Job:
    """The job that this request id made before. Raises Conflict if it was deleted or made from another document."""
    if before.deleted_at is not None:
        raise Conflict(
            "request_id", said("This request made job {id}, which was deleted. Give a new key.", id=before.pk)
        )
    same = (before.display_name, before.location_name, before.labels, before.spec)
    given = asked.display_name, location, dict(asked.labels), to_document(asked.job_spec)
    if same != given or not of_jobs.are_the_same(before, asked):
        raise Conflict(
            "request_id", said("With this key job {id} was made from another document.", id=before.pk)
        )
    return before


def _insert(
    project: Project,
    user: User,
    asked: CustomJob,
    types: Types,
    location: str,
    request_id: str | None,
    now: datetime,
    values: Values,
    cloned_from: int | None,
    resolved: Mapping[str, object],
    trial: TrialOfJob | None,
) -> Job:
    for _ in range(ID_TRIES):
        try:
            with transaction.atomic():
                with write_together():
                    job = _insert_rows(
                        project, user, asked, types, location, request_id, now, cloned_from, resolved, trial
                    )
                of_jobs.keep(job, values)
                if resolved:
                    brought.hold(job)
                return job
        except IntegrityError:
            # The same request came at the same moment and made the job; or the id was taken.
            before = _job_of_request(project, user, request_id) if request_id is not None else None
            if before is not None:
                return _check_same_request(before, asked, location)
    raise Unavailable(said("No free number was found for this job. Try again."))


def _insert_rows(
    project: Project,
    user: User,
    asked: CustomJob,
    types: Types,
    location: str,
    request_id: str | None,
    now: datetime,
    cloned_from: int | None,
    resolved: Mapping[str, object],
    trial: TrialOfJob | None,
) -> Job:
    spec: Mapping[str, object] = to_document(asked.job_spec)
    replicas = list(asked.job_spec.replicas())
    used = as_kept(asked.job_spec, resolved)
    job = _insert_job(
        Job(
            id=new_id(now),
            project=project,
            location_name=location,
            display_name=asked.display_name,
            owner=user,
            owner_name=user.get_username(),
            request_id=request_id,
            spec=spec,
            labels=dict(asked.labels),
            machine_types=machine_types.types_to_keep(asked.job_spec, types),
            replica_count=len(replicas),
            cloned_from=cloned_from,
            trial=str(trial.number) if trial else "",
            undrawn=trial is not None,
            resolved=resolved,
            **capacity.columns_of(used, asked.labels, types, project.highest_priority),
            state=JobState.QUEUED,
            reason=said("Waits to be placed."),
            created_at=now,
            updated_at=now,
            queued_at=now,
            due_at=now + _first_look(asked),
        )
    )
    _insert_replica.many(
        [
            Replica(job=job, name=name, pool=pool, index=index, state=ReplicaState.WAITING)
            for name, pool, index, _ in replicas
        ]
    )
    if asked.labels:
        _insert_label.many(
            [JobLabel(job=job, project=project, key=key, value=value) for key, value in asked.labels.items()]
        )
    _insert_transition(
        Transition(
            job=job,
            at=now,
            subject="job",
            to_state=JobState.QUEUED,
            attempt=1,
            cause=said("Submitted."),
            actor=user.get_username(),
        )
    )
    return job


def _first_look(asked: CustomJob) -> timedelta:
    """When the job is first looked at: at the limit on its waiting, if that comes soon."""
    limit_s = asked.job_spec.wait_limit_s
    return QUEUED_LOOK if limit_s is None else timedelta(seconds=min(limit_s, QUEUED_LOOK.total_seconds()))


def new_id(now: datetime) -> int:
    """An id for a new job: later jobs have higher ids, and nobody can count jobs from their ids."""
    return int(now.timestamp() * 1000) * 1_000_000 + secrets.randbelow(1_000_000)
