"""Training pipelines: each submits one custom job, and its state is the state of that job.

The caller has checked that the person may do it, and owns the transaction.
"""

from __future__ import annotations

from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import Q

from agents.infra.refusals import Conflict, Refused
from agents.infra.texts import said
from jobs import services
from jobs.models import Project, RegisteredModel, TrainingPipeline
from jobs.rules.lifecycle.states import TERMINAL, JobState
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.spec.pipeline import CUSTOM, Pipeline, about_inputs, in_pipeline, parse_pipeline

# The job of a pipeline: its columns are read wherever the state of the pipeline is.
WITH_JOB = ("project", "job", "job__project", "version", "version__model", "version__model__project")


def create(
    project: Project,
    user: User,
    document: object,
    location: str,
    request_id: str | None,
    now: datetime,
    may_prioritize: bool = False,
) -> TrainingPipeline:
    """A new pipeline with its job, or the one that the same request made before. Raises InvalidDocument and the classes
    of refusals.py."""
    asked = parse_pipeline(document)
    _check_model(project, asked)
    # With a blank, it is never a key that a client sent for a job of its own.
    key = f"pipeline {request_id}" if request_id else None
    try:
        job = services.submit(project, user, asked.job, location, key, now, may_prioritize)
    except InvalidDocument as refused:
        raise about_inputs(refused) from refused
    except Refused as refused:
        refused.field = in_pipeline(refused.field)
        raise
    before = TrainingPipeline.every.select_related(*WITH_JOB).filter(job=job).first()
    if before is not None:
        return _same(before, asked)
    return TrainingPipeline.objects.create(
        id=services.new_id(now),
        project=project,
        location_name=job.location_name,
        display_name=asked.display_name,
        owner=user,
        definition=CUSTOM,
        inputs=asked.inputs,
        upload=dict(asked.upload.document) if asked.upload else None,
        model_id=asked.model_id,
        parent_model=asked.parent_model,
        labels=dict(asked.labels),
        job=job,
        created_at=now,
    )


def state_of(pipeline: TrainingPipeline) -> JobState:
    """A pipeline whose job has succeeded still runs until its model is recorded."""
    state = JobState(pipeline.job.state)
    return JobState.RUNNING if state is JobState.SUCCEEDED and _waits_for_model(pipeline) else state


def in_state(state: JobState) -> Q:
    """The pipelines in this state, by the same rule."""
    recorded = Q(upload__isnull=True) | Q(version__isnull=False)
    if state is JobState.SUCCEEDED:
        return Q(job__state=state) & recorded
    if state is JobState.RUNNING:
        return Q(job__state=state) | (Q(job__state=JobState.SUCCEEDED) & ~recorded)
    return Q(job__state=state)


def ended_at(pipeline: TrainingPipeline) -> datetime | None:
    if state_of(pipeline) not in TERMINAL:
        return None
    return pipeline.version.created_at if pipeline.version else pipeline.job.ended_at


def cancel(pipeline: TrainingPipeline, actor: str, now: datetime) -> None:
    services.cancel(pipeline.job, actor, now)


def delete(pipeline: TrainingPipeline, actor: str, now: datetime) -> None:
    """Hide a pipeline that is over. Its job and its model stay."""
    if state_of(pipeline) not in TERMINAL:
        raise Refused("state", said("Only a pipeline that is over can be deleted. Cancel it first."))
    TrainingPipeline.every.filter(pk=pipeline.pk, deleted_at=None).update(
        deleted_at=now, deleted_by=actor[:150]
    )


def _waits_for_model(pipeline: TrainingPipeline) -> bool:
    return pipeline.upload is not None and pipeline.version_id is None


def _check_model(project: Project, asked: Pipeline) -> None:
    there = RegisteredModel.objects.filter(project=project)
    if asked.parent_model and not there.filter(model_id=asked.parent_model).exists():
        raise Refused(
            "parent_model",
            said(
                "There is no model {name} in project {project}.",
                name=asked.parent_model,
                project=project.name,
            ),
        )
    if asked.model_id and not asked.parent_model and there.filter(model_id=asked.model_id).exists():
        raise Conflict(
            "model_id",
            said(
                "Model {name} exists already. Choose another name, or name it in parent_model to add a version.",
                name=asked.model_id,
            ),
        )


def _same(before: TrainingPipeline, asked: Pipeline) -> TrainingPipeline:
    upload = dict(asked.upload.document) if asked.upload else None
    same = (before.display_name, before.upload, before.model_id, before.parent_model)
    if before.deleted_at is not None or same != (
        asked.display_name,
        upload,
        asked.model_id,
        asked.parent_model,
    ):
        raise Conflict(
            "request_id", said("With this key pipeline {id} was made from another document.", id=before.pk)
        )
    return before
