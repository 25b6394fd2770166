"""Training pipelines: each submits one custom job or one tuning job, and its state is the state of that.

The caller has checked that the person may do it, and owns the transaction.
"""

from __future__ import annotations

from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import Q

from agents.infra.refusals import Conflict, Refused
from agents.infra.texts import said
from jobs import services
from jobs.models import Job, Project, RegisteredModel, TrainingPipeline, TuningJob
from jobs.rules.lifecycle.states import TERMINAL, JobState
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.spec.pipeline import CUSTOM, Pipeline, about_inputs, in_pipeline, parse_pipeline
from jobs.tuning import tuning_jobs

# The task of a pipeline: its columns are read wherever the state of the pipeline is.
WITH_TASK = (
    "project",
    *("job", "job__project", "tuning_job", "tuning_job__project"),
    *("version", "version__model", "version__model__project"),
)
# Large columns that no list shows.
LARGE = ("job__spec", "inputs", "tuning_job__study", "tuning_job__trial_spec")
# What a pipeline gets whose task has succeeded without a model: INVALID_ARGUMENT, as if its code had failed.
NO_MODEL = 3


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
    asked = read(project, document)
    # With a blank, it is never a key that a client sent for a job of its own.
    key = f"pipeline {request_id}" if request_id else None
    submit = services.submit if asked.definition == CUSTOM else tuning_jobs.create
    try:
        task = submit(project, user, asked.job, location, key, now, may_prioritize)
    except InvalidDocument as refused:
        raise about_inputs(refused, asked.definition) from refused
    except Refused as refused:
        refused.field = in_pipeline(refused.field, asked.definition)
        raise
    of_task = {"job": task} if isinstance(task, Job) else {"tuning_job": task}
    before = TrainingPipeline.every.select_related(*WITH_TASK).filter(**of_task).first()
    if before is not None:
        return _same(before, asked)
    return TrainingPipeline.objects.create(
        id=services.new_id(now),
        project=project,
        location_name=task.location_name,
        display_name=asked.display_name,
        owner=user,
        definition=asked.definition,
        inputs=asked.inputs,
        upload=dict(asked.upload.document) if asked.upload else None,
        model_id=asked.model_id,
        parent_model=asked.parent_model,
        labels=dict(asked.labels),
        created_at=now,
        **of_task,
    )


def read(project: Project, document: object) -> Pipeline:
    """The pipeline of a document, whose models are as they must be. Its inputs are read when the job is submitted.

    Raises InvalidDocument and the classes of refusals.py."""
    asked = parse_pipeline(document)
    _check_model(project, asked)
    return asked


def task_of(pipeline: TrainingPipeline) -> Job | TuningJob:
    task = pipeline.job or pipeline.tuning_job
    assert task is not None  # a constraint of the table
    return task


def state_of(pipeline: TrainingPipeline) -> JobState:
    """A pipeline whose task has succeeded still runs until its model is recorded, and so until its files are stored."""
    state = JobState(task_of(pipeline).state)
    if state is JobState.SUCCEEDED and _waits_for_model(pipeline):
        return JobState.FAILED if pipeline.without_model else JobState.RUNNING
    return state


def in_state(state: JobState) -> Q:
    """The pipelines in this state, by the same rule."""
    recorded = Q(upload__isnull=True) | Q(version__isnull=False)
    of_task, succeeded = _task_in(state), _task_in(JobState.SUCCEEDED)
    if state is JobState.SUCCEEDED:
        return of_task & recorded
    if state is JobState.RUNNING:
        return of_task | (succeeded & ~recorded & Q(without_model=""))
    if state is JobState.FAILED:
        return of_task | (succeeded & ~recorded & ~Q(without_model=""))
    return of_task


def ended_at(pipeline: TrainingPipeline) -> datetime | None:
    if state_of(pipeline) not in TERMINAL:
        return None
    return pipeline.version.created_at if pipeline.version else task_of(pipeline).ended_at


def error_of(pipeline: TrainingPipeline) -> tuple[int, str] | None:
    """(gRPC code, message) of one that has failed."""
    task = task_of(pipeline)
    if task.error_code is not None:
        return task.error_code, task.error_message
    return (NO_MODEL, pipeline.without_model) if pipeline.without_model else None


def cancel(pipeline: TrainingPipeline, actor: str, now: datetime) -> None:
    task = task_of(pipeline)
    if isinstance(task, Job):
        services.cancel(task, actor, now)
    else:
        tuning_jobs.cancel(task, actor, now)


def delete(pipeline: TrainingPipeline, actor: str, now: datetime) -> None:
    """Hide a pipeline that is over. Its job and its model stay."""
    if state_of(pipeline) not in TERMINAL:
        raise Refused("state", said("Only a pipeline that is over can be deleted. Cancel it first."))
    TrainingPipeline.every.filter(pk=pipeline.pk, deleted_at=None).update(
        deleted_at=now, deleted_by=actor[:150]
    )


def _task_in(state: JobState) -> Q:
    return Q(job__state=state) | Q(tuning_job__state=state)


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
