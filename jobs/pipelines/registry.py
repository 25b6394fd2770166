"""Models that pipelines leave: recorded when the job has succeeded, with versions, aliases and where their files are.

Trainyard does not copy the files: a version says where the job wrote them. They are stored there by then, or lie on a
host that does not give them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime

from django.db import transaction
from django.db.models import Count, Max, Q

from agents.infra.database_errors import DATABASE_UNAVAILABLE
from agents.infra.refusals import Refused
from agents.infra.texts import said
from jobs import services
from jobs.models import Job, ModelVersion, RegisteredModel, TrainingPipeline, TuningJob
from jobs.outputs import state
from jobs.pipelines import model_files
from jobs.projects import audit
from jobs.rules.lifecycle.states import JobState
from jobs.rules.spec.pipeline import ModelUpload, read_upload
from jobs.rules.tuning.measurements import best_trial
from jobs.rules.tuning.trials import TrialState
from jobs.tuning.snapshot import study_of

log = logging.getLogger(__name__)
# The alias that the first version has, and `models/ID` stands for.
DEFAULT = "default"
KIND = "model"
BATCH = 100


def record_models(now: datetime) -> None:
    """Record the models of the pipelines whose tasks have succeeded, once their files are stored. Each in a transaction
    of its own: one that cannot be recorded, or waits for its files, does not hold up the others."""
    waiting = TrainingPipeline.every.filter(
        Q(job__state=JobState.SUCCEEDED) | Q(tuning_job__state=JobState.SUCCEEDED),
        upload__isnull=False,
        version__isnull=True,
        without_model="",
    )
    recorded = 0
    for pk in list(waiting.order_by("pk").values_list("pk", flat=True)):
        if recorded == BATCH:
            return
        try:
            recorded += _record_one(pk, now)
        except DATABASE_UNAVAILABLE:
            raise
        except Exception:
            log.exception("The model of pipeline %s cannot be recorded. The next sweep tries again.", pk)


def _record_one(pk: int, now: datetime) -> bool:
    """Returns whether it needs nothing more."""
    with transaction.atomic():
        rows = TrainingPipeline.every.select_for_update(no_key=True, of=("self",))
        pipeline = rows.select_related("job", "tuning_job", "project").get(pk=pk)
        if pipeline.version_id is not None or _goes_on(pipeline):
            return False
        job = pipeline.job or _best_job(pipeline)
        if job is not None and state.is_coming(job, now):
            return False
        upload = read_upload(pipeline.upload)
        if job is None:
            _fail(pk, said("No trial measured the metric: there is no best trial, and so no model."))
        elif not upload.artifact_uri and model_files.is_known_to_be_empty(job):
            directory = model_files.directory_of(job)
            _fail(pk, said("The training wrote no model to {directory}.", directory=directory))
        else:
            _record(pipeline, job, upload, now)
    return True


def _fail(pk: int, why: str) -> None:
    TrainingPipeline.every.filter(pk=pk).update(without_model=why)


def _goes_on(pipeline: TrainingPipeline) -> bool:
    """Whether its study was extended meanwhile: then its end comes later. Asked anew, behind the lock."""
    if pipeline.tuning_job_id is None:
        return False
    return TuningJob.every.get(pk=pipeline.tuning_job_id).state != JobState.SUCCEEDED


def default_versions(models: Iterable[RegisteredModel]) -> dict[int, ModelVersion]:
    """The default version of each model, or else its newest one, by the key of the model. One query."""
    rows = ModelVersion.objects.filter(model__in=list(models)).order_by("number")
    found: dict[int, ModelVersion] = {}
    for version in rows.select_related(
        "model__project", "training_pipeline__project", "training_pipeline__tuning_job", "job__project"
    ):
        if DEFAULT in version.aliases or DEFAULT not in getattr(found.get(version.model_id), "aliases", ()):
            found[version.model_id] = version
    return found


def version_counts(models: Iterable[RegisteredModel]) -> dict[int, int]:
    """How many versions each model has, by the key of the model."""
    rows = ModelVersion.objects.filter(model__in=list(models)).order_by()
    return dict(rows.values_list("model").annotate(count=Count("pk")))


def version_of(model: RegisteredModel, named: str) -> ModelVersion | None:
    """The version with this number or alias; for "" the default one."""
    versions = list(model.versions.filter(deleted_at=None).order_by("-number"))
    if named.isascii() and named.isdigit():
        return next((one for one in versions if one.number == int(named[:9])), None)
    found = next((one for one in versions if (named or DEFAULT) in one.aliases), None)
    return found if found or named else next(iter(versions), None)


def change_aliases(version: ModelVersion, changes: Iterable[str], now: datetime) -> None:
    """Give the version these aliases, and take away those that begin with "-". Another version loses what it gets."""
    with transaction.atomic():
        _lock(version.model)
        wanted = [change for change in changes if not change.startswith("-")]
        removed = {change[1:] for change in changes if change.startswith("-")}
        if DEFAULT in removed:
            raise Refused(
                "version_aliases", said('"default" cannot be taken away: give it to another version instead.')
            )
        version.refresh_from_db()
        version.aliases = [one for one in dict.fromkeys([*version.aliases, *wanted]) if one not in removed]
        version.updated_at = now
        version.save(update_fields=["aliases", "updated_at"])
        _take_from_others(version, wanted, now)


def delete_version(version: ModelVersion, actor: str, now: datetime) -> None:
    """Forget a version. The files that the job wrote stay."""
    with transaction.atomic():
        _lock(version.model)
        others = version.model.versions.filter(deleted_at=None).exclude(pk=version.pk)
        if not others.exists():
            raise Refused("name", said("It is the only version: delete the model."))
        version.refresh_from_db()
        if DEFAULT in version.aliases:
            raise Refused("name", said("It is the default version: give that alias to another one first."))
        if not ModelVersion.objects.filter(pk=version.pk).update(deleted_at=now, deleted_by=actor[:150]):
            return
        subject, project = f"{version.model.model_id}@{version.number}", version.model.project
        audit.record(actor, "model_version.delete", KIND, subject, version.artifact_uri, None, now, project)


def delete_model(model: RegisteredModel, actor: str, now: datetime) -> None:
    """Forget a model with all its versions. The files that the jobs wrote stay."""
    with transaction.atomic():
        _lock(model)
        versions = model.versions.filter(deleted_at=None).update(deleted_at=now, deleted_by=actor[:150])
        if not RegisteredModel.objects.filter(pk=model.pk).update(deleted_at=now, deleted_by=actor[:150]):
            return
        before = {"name": model.display_name, "versions": versions}
        audit.record(actor, "model.delete", KIND, model.model_id, before, None, now, model.project)


def _best_job(pipeline: TrainingPipeline) -> Job | None:
    """The job of the best trial: it left the model."""
    assert pipeline.tuning_job is not None  # it has a job or a tuning job
    rows = pipeline.tuning_job.trials.filter(state=TrialState.SUCCEEDED, final__isnull=False)
    finals = {number: final["metrics"] for number, final in rows.values_list("number", "final") if final}
    best = best_trial(study_of(pipeline.tuning_job), finals)
    return None if best is None else rows.select_related("job").get(number=best).job


def _record(pipeline: TrainingPipeline, job: Job, upload: ModelUpload, now: datetime) -> None:
    model = _model(pipeline, upload, now)
    # The numbers of deleted versions are not given again.
    last = ModelVersion.every.filter(model=model).aggregate(last=Max("number"))["last"] or 0
    first = not model.versions.filter(deleted_at=None).exists()
    aliases = [DEFAULT, *upload.aliases] if first else upload.aliases
    version = ModelVersion.objects.create(
        id=services.new_id(now),
        model=model,
        number=last + 1,
        aliases=list(dict.fromkeys(aliases)),
        description=upload.version_description,
        artifact_uri=upload.artifact_uri or model_files.directory_of(job),
        document=pipeline.upload,
        job=job,
        created_at=now,
        updated_at=now,
    )
    _take_from_others(version, version.aliases, now)
    TrainingPipeline.every.filter(pk=pipeline.pk).update(version=version)


def _model(pipeline: TrainingPipeline, upload: ModelUpload, now: datetime) -> RegisteredModel:
    """The model that gets the version: one that exists under this name, or a new one. Whatever has happened to the
    names since the submit, a result is never lost."""
    named = pipeline.parent_model or pipeline.model_id
    if named:
        there = RegisteredModel.objects.filter(project=pipeline.project, model_id=named)
        found = there.select_for_update(no_key=True).first()
        if found is not None:
            RegisteredModel.objects.filter(pk=found.pk).update(updated_at=now)
            return found
    new = services.new_id(now)
    return RegisteredModel.objects.create(
        id=new,
        project=pipeline.project,
        model_id=named or str(new),
        location_name=pipeline.location_name,
        display_name=upload.display_name,
        description=upload.description,
        labels=dict(upload.labels),
        created_at=now,
        updated_at=now,
    )


def _lock(model: RegisteredModel) -> None:
    RegisteredModel.every.select_for_update(no_key=True).get(pk=model.pk)


def _take_from_others(version: ModelVersion, aliases: Iterable[str], now: datetime) -> None:
    """An alias names one version of a model."""
    given = set(aliases)
    for other in version.model.versions.filter(deleted_at=None).exclude(pk=version.pk):
        left = [alias for alias in other.aliases if alias not in given]
        if left != other.aliases:
            ModelVersion.objects.filter(pk=other.pk).update(aliases=left, updated_at=now)
