"""Vertex AI's TrainingPipeline of custom tasks and of tuning: create, get, list, cancel, delete."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.db import transaction
from django.http import Http404
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console.api import paging, resources
from console.api.errors import BadRequest
from console.api.jobs import filters
from console.api.jobs.custom_jobs import as_header, in_location, request_id, warnings
from console.api.times import format_time
from console.api.tuning.documents import tuning_job_name
from console.api.tuning.tuning_jobs import tuning_warnings
from console.api.views import GoogleView, person
from console.auth import access
from jobs.models import Job, TrainingPipeline, TuningJob
from jobs.pipelines import pipelines
from jobs.rules.lifecycle.states import TERMINAL, JobState

Document = dict[str, Any]
STATES = {f"PIPELINE_STATE_{state.value}": state for state in JobState}
FIELDS: filters.Fields = {
    "state": lambda operator, value: filters.state_field(operator, value, STATES, pipelines.in_state),
    "training_task_definition": partial(filters.text_field, "training_task_definition", "definition"),
}


class PipelinesView(GoogleView):
    """P/trainingPipelines: POST creates, GET lists."""

    def post(self, request: Request, project: str, location: str) -> Response:
        tenant = access.project_or_404(request.user, "submit", project)
        document = request.data
        if not isinstance(document, dict):
            raise BadRequest("", "The body must be a TrainingPipeline as a JSON object.")
        with transaction.atomic():
            pipeline = pipelines.create(
                tenant,
                person(request),
                document,
                location,
                request_id(request),
                timezone.now(),
                access.can(request.user, "prioritize", tenant),
            )
        task = pipelines.task_of(pipeline)
        told = warnings(task) if isinstance(task, Job) else as_header(tuning_warnings(task, location))
        return Response(training_pipeline(pipeline), headers=told)

    def get(self, request: Request, project: str, location: str) -> Response:
        tenant = access.project_or_404(request.user, "see", project)
        text = request.query_params.get("filter", "")
        rows = in_location(TrainingPipeline.objects.filter(project=tenant), location)
        rows = rows.filter(filters.parse(text, FIELDS)).select_related(*pipelines.WITH_TASK)
        found, token = paging.newest_first(request, rows, text)
        mask = resources.read_mask(request)
        shown = [resources.masked(training_pipeline(one), mask) for one in found]
        return Response({"trainingPipelines": shown, **token})


class PipelineView(GoogleView):
    """P/trainingPipelines/{id}: GET, DELETE."""

    def get(self, request: Request, project: str, location: str, pipeline_id: str) -> Response:
        found = _pipeline(request, "see", project, pipeline_id)
        return Response(resources.masked(training_pipeline(found), resources.read_mask(request)))

    def delete(self, request: Request, project: str, location: str, pipeline_id: str) -> Response:
        found = _pipeline(request, "delete", project, pipeline_id)
        now = timezone.now()
        with transaction.atomic():
            pipelines.delete(found, person(request).get_username(), now)
        return Response(
            resources.delete_operation(f"projects/{project}/locations/{location}/operations/{found.pk}", now)
        )


class CancelView(GoogleView):
    """P/trainingPipelines/{id}:cancel. Asynchronous: the answer only says that the request was accepted."""

    def post(self, request: Request, project: str, location: str, pipeline_id: str) -> Response:
        found = _pipeline(request, "cancel", project, pipeline_id)
        with transaction.atomic():
            pipelines.cancel(found, person(request).get_username(), timezone.now())
        return Response({})


def pipeline_name(pipeline: TrainingPipeline) -> str:
    place = f"projects/{pipeline.project.name}/locations/{pipeline.location_name}"
    return f"{place}/trainingPipelines/{pipeline.pk}"


def training_pipeline(pipeline: TrainingPipeline) -> Document:
    """The resource. What the client sent comes back as it was sent: clients look for their own names in it."""
    task, state = pipelines.task_of(pipeline), pipelines.state_of(pipeline)
    document: Document = {
        "name": pipeline_name(pipeline),
        "displayName": pipeline.display_name,
        "trainingTaskDefinition": pipeline.definition,
        "trainingTaskInputs": pipeline.inputs,
        "trainingTaskMetadata": _backing(task),
        "state": f"PIPELINE_STATE_{state.value}",
        "createTime": format_time(pipeline.created_at),
        "updateTime": format_time(max(task.updated_at, pipeline.created_at)),
    }
    if pipeline.labels:
        document["labels"] = pipeline.labels
    if pipeline.upload is not None:
        document["modelToUpload"] = {**pipeline.upload, **_uploaded(pipeline)}
    for name, value in (("modelId", pipeline.model_id), ("parentModel", pipeline.parent_model)):
        if value:
            document[name] = value
    if task.started_at:
        document["startTime"] = format_time(task.started_at)
    if state in TERMINAL:
        if ended := pipelines.ended_at(pipeline):
            document["endTime"] = format_time(ended)
        if error := pipelines.error_of(pipeline):
            document["error"] = {"code": error[0], "message": error[1]}
    return document


def _backing(task: Job | TuningJob) -> Document:
    if isinstance(task, Job):
        return {"backingCustomJob": resources.job_name(task)}
    return {"backingHyperparameterTuningJob": tuning_job_name(task)}


def _uploaded(pipeline: TrainingPipeline) -> Document:
    version = pipeline.version
    if version is None:
        return {}
    return {
        "name": resources.model_name(version.model),
        "versionId": str(version.number),
        "artifactUri": version.artifact_uri,
    }


def _pipeline(request: Request, verb: access.Verb, project: str, pipeline_id: str) -> TrainingPipeline:
    """The pipeline. What may be done to it is what may be done to its task. The location is not compared."""
    tenant = access.project_or_404(request.user, "see", project)
    rows = TrainingPipeline.objects.select_related(*pipelines.WITH_TASK)
    found = rows.filter(pk=int(pipeline_id), project=tenant).first()
    if found is None:
        raise Http404
    access.require(request.user, verb, pipelines.task_of(found))
    return found
