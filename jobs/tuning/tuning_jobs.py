"""What people ask of a tuning job: submit it, cancel it, delete it.

The caller has checked that the person may do it, and owns the transaction.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from importlib.util import find_spec

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from agents.infra.refusals import Conflict, Refused, Unavailable
from agents.infra.texts import said
from jobs import services
from jobs.models import Project, TuningJob
from jobs.models.first_rows import DEFAULT
from jobs.preparations import brought
from jobs.projects import locations
from jobs.rules.lifecycle.states import TERMINAL, JobState
from jobs.rules.spec.custom_job import CustomJob, to_document
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.tuning import study as asked_for
from jobs.rules.tuning.parse_tuning_job import parse_tuning_job
from jobs.rules.tuning.study import study_document
from jobs.scheduling import machine_types
from jobs.secrets import of_jobs, of_tuning_jobs
from jobs.tuning import prior_studies, trials
from jobs.tuning.refused_trials import about_trials
from jobs.wake import announce, hints

ID_TRIES = 5


def create(
    project: Project,
    user: User,
    document: object,
    location: str,
    request_id: str | None,
    now: datetime,
    may_prioritize: bool = False,
) -> TuningJob:
    """A new tuning job, or the one that the same request made before. Raises InvalidDocument and the classes of
    refusals.py."""
    location = (location or DEFAULT)[:63]
    if request_id is not None:
        services.check_request_id(request_id)
    before = _of_request(project, user, request_id)
    if before is None:
        locations.check_serves(project, location)
    asked = _read(document, location)
    if before is not None:
        return _same(before, asked, location)
    if project.archived_at is not None:
        raise Refused(
            "project", said("Project {project} is archived: it takes no jobs any more.", project=project.name)
        )
    _check_sampler(asked.study)
    earlier = prior_studies.find(asked.study, project)
    with about_trials():
        values = _secrets(asked, project, user, now)
        return _insert(project, user, asked, location, request_id, now, may_prioritize, values, earlier)


def _check_sampler(study: asked_for.StudySpec) -> None:
    """Raises Refused where the packages are not installed that the search needs."""
    if study.algorithm not in asked_for.OPTUNA.values():
        return
    needed = ["optuna", *(["cmaes"] if study.algorithm == asked_for.OPTUNA[3] else [])]
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise Refused(
            "study_spec.trainyard.algorithm",
            said(
                "{name} needs Optuna, and {missing} is not installed here. An admin of the deployment installs it with "
                "pip install 'trainyard[optuna]'; or leave algorithm out, for the default search.",
                name=study.algorithm,
                missing=" and ".join(missing),
            ),
        )


def cancel(tuning_job: TuningJob, actor: str, now: datetime) -> None:
    """Cancel it with its trials. Cancelling it again, or after its end, changes nothing."""
    open_ = TuningJob.every.filter(pk=tuning_job.pk, cancel_requested_at=None).exclude(state__in=TERMINAL)
    if open_.update(cancel_requested_at=now, cancel_requested_by=actor[:150], updated_at=now, due_at=now):
        hints.tuning([tuning_job.pk])
        announce.hints([f"tuning:{tuning_job.pk}", f"jobs:{tuning_job.project.name}"])


def delete(tuning_job: TuningJob, actor: str, now: datetime) -> None:
    """Hide a tuning job that is over. The jobs of its trials stay."""
    row = TuningJob.every.filter(pk=tuning_job.pk)
    # In the same statement: it may have been extended since the caller read it.
    over = row.filter(deleted_at=None, state__in=TERMINAL)
    if not over.update(deleted_at=now, deleted_by=actor[:150]) and row.filter(deleted_at=None).exists():
        raise Refused("state", said("Only a tuning job that is over can be deleted. Cancel it first."))
    announce.hints([f"tuning:{tuning_job.pk}", f"jobs:{tuning_job.project.name}"])


def read(document: object, project: Project, location: str) -> asked_for.TuningJob:
    """What the document asks for. Raises InvalidDocument and Refused. Nothing is submitted."""
    locations.check_serves(project, location)
    return _read(document, location)


def _read(document: object, location: str) -> asked_for.TuningJob:
    types = machine_types.of_location(location)
    try:
        return parse_tuning_job(document, types)
    except InvalidDocument as refused:
        if any(each.field.endswith(".accelerator_type") for each in refused.violations):
            parse_tuning_job(document, types, machine_types.gpus_of(location))
        raise


def _secrets(asked: asked_for.TuningJob, project: Project, user: User, now: datetime) -> of_jobs.Values:
    of_trial = CustomJob(asked.display_name, asked.trial_spec, asked.labels, asked.asked_secrets)
    return of_jobs.found(brought.with_git_credentials(of_trial), project, user, now)


def _insert(
    project: Project,
    user: User,
    asked: asked_for.TuningJob,
    location: str,
    request_id: str | None,
    now: datetime,
    may_prioritize: bool,
    values: of_jobs.Values,
    earlier: Sequence[prior_studies.Earlier],
) -> TuningJob:
    for _ in range(ID_TRIES):
        try:
            with transaction.atomic():
                made = TuningJob.objects.create(
                    id=services.new_id(now),
                    project=project,
                    location_name=location,
                    display_name=asked.display_name,
                    owner=user,
                    owner_name=user.get_username(),
                    request_id=request_id,
                    study=study_document(asked.study),
                    trial_spec=to_document(asked.trial_spec),
                    max_trials=asked.max_trials,
                    parallel_trials=asked.parallel_trials,
                    max_failed_trials=asked.max_failed_trials,
                    labels=dict(asked.labels),
                    may_prioritize=may_prioritize,
                    seed=secrets.randbits(asked_for.SEED_BITS) if asked.seed is None else asked.seed,
                    state=JobState.QUEUED,
                    created_at=now,
                    updated_at=now,
                    due_at=now,
                )
                of_tuning_jobs.keep(made, values)
                prior_studies.keep(made, earlier)
                # In the same transaction: what is accepted has a trial in the queue, and what a trial would be
                # refused for is refused now.
                trials.request(made, 1, now)
        except IntegrityError:
            # The same request came at the same moment and made it; or the id was taken.
            if (before := _of_request(project, user, request_id)) is not None:
                return _same(before, asked, location)
            continue
        hints.tuning([made.pk])
        hints.schedule()
        announce.hint(f"jobs:{project.name}")
        return made
    raise Unavailable(said("No free number was found for this job. Try again."))


def _of_request(project: Project, user: User, request_id: str | None) -> TuningJob | None:
    if request_id is None:
        return None
    return TuningJob.every.filter(project=project, owner=user, request_id=request_id).first()


def _same(before: TuningJob, asked: asked_for.TuningJob, location: str) -> TuningJob:
    """The tuning job that this request made before. Raises Conflict if it was deleted or made from another document."""
    if before.deleted_at is not None:
        raise Conflict(
            "request_id",
            said("This request made tuning job {id}, which was deleted. Give a new key.", id=before.pk),
        )
    counts = (asked.max_trials, asked.parallel_trials, asked.max_failed_trials)
    # Of a study that was extended, nobody knows any more how many trials it was made with.
    if before.extended_at is None and counts != (
        before.max_trials,
        before.parallel_trials,
        before.max_failed_trials,
    ):
        raise _other_document(before)
    # A document that leaves the seed to chance asks for any.
    seed = before.seed if asked.seed is None else asked.seed
    made = (
        before.location_name,
        before.display_name,
        before.study,
        before.trial_spec,
        before.labels,
        before.seed,
    )
    given = (
        location,
        asked.display_name,
        study_document(asked.study),
        to_document(asked.trial_spec),
        dict(asked.labels),
        seed,
    )
    if made != given:
        raise _other_document(before)
    return before


def _other_document(before: TuningJob) -> Conflict:
    return Conflict(
        "request_id", said("With this key tuning job {id} was made from another document.", id=before.pk)
    )
