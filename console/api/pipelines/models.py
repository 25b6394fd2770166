"""Vertex AI's Model resource, as far as training needs it: what pipelines left, its versions and their names."""

from __future__ import annotations

from typing import Any

from django.http import Http404
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console.api import paging, resources
from console.api.jobs import filters
from console.api.jobs.custom_jobs import in_location
from console.api.pipelines.training_pipelines import pipeline_name
from console.api.times import format_time
from console.api.views import GoogleView, person
from console.auth import access
from jobs.models import ModelVersion, RegisteredModel
from jobs.pipelines import registry
from jobs.rules.spec.json_fields import Complaints, MessageReader
from jobs.rules.spec.pipeline import read_aliases

Document = dict[str, Any]
OF_VERSION = ("model", "model__project", "job", "training_pipeline", "training_pipeline__project")


class ModelsView(GoogleView):
    """P/models: GET lists, each with its default version. A model is made by a training pipeline."""

    def get(self, request: Request, project: str, location: str) -> Response:
        tenant = access.project_or_404(request.user, "see", project)
        text = request.query_params.get("filter", "")
        rows = in_location(RegisteredModel.objects.filter(project=tenant), location)
        fields = {"model": lambda operator, value: filters.text_field("model", "model_id", operator, value)}
        found, token = paging.newest_first(
            request, rows.filter(filters.parse(text, fields, without=("state",))), text
        )
        versions = registry.default_versions(found)
        shown = [model_document(versions[one.pk]) for one in found if one.pk in versions]
        mask = resources.read_mask(request)
        return Response({"models": [resources.masked(one, mask) for one in shown], **token})


class ModelView(GoogleView):
    """P/models/{id} and P/models/{id}@{version or alias}: GET; DELETE of the model with all its versions."""

    def get(self, request: Request, project: str, location: str, model: str, version: str = "") -> Response:
        return Response(model_document(_version(request, "see", project, model, version)))

    def delete(
        self, request: Request, project: str, location: str, model: str, version: str = ""
    ) -> Response:
        if version:
            raise Http404
        found = _model(request, "see", project, model)
        for one in found.versions.filter(deleted_at=None).select_related("job"):
            access.require(request.user, "delete", one.job)
        now = timezone.now()
        registry.delete_model(found, person(request).get_username(), now)
        return Response(resources.delete_operation(_operation(project, location, found.pk), now))


class VersionsView(GoogleView):
    """P/models/{id}:listVersions."""

    def get(self, request: Request, project: str, location: str, model: str, version: str = "") -> Response:
        found = _model(request, "see", project, model)
        rows = ModelVersion.objects.filter(model=found).select_related(*OF_VERSION)
        versions, token = paging.newest_first(request, rows)
        return Response({"models": [model_document(one) for one in versions], **token})


class DeleteVersionView(GoogleView):
    """DELETE P/models/{id}@{version}:deleteVersion."""

    def delete(
        self, request: Request, project: str, location: str, model: str, version: str = ""
    ) -> Response:
        found = _version(request, "see", project, model, version)
        access.require(request.user, "delete", found.job)
        now = timezone.now()
        registry.delete_version(found, person(request).get_username(), now)
        return Response(resources.delete_operation(_operation(project, location, found.pk), now))


class AliasesView(GoogleView):
    """POST P/models/{id}@{version}:mergeVersionAliases with `{"versionAliases": ["prod", "-old"]}`."""

    def post(self, request: Request, project: str, location: str, model: str, version: str = "") -> Response:
        found = _version(request, "submit", project, model, version)
        complaints = Complaints()
        fields = MessageReader(request.data, "", complaints)
        fields.ignore("name")
        changes = fields.take("version_aliases")
        plain = [_plain(each) for each in changes] if isinstance(changes, list) else changes
        read_aliases(plain, fields, "version_aliases")
        fields.close()
        complaints.raise_if_any()
        registry.change_aliases(found, changes if isinstance(changes, list) else [], timezone.now())
        return Response(model_document(_version(request, "see", project, model, str(found.number))))


def model_document(version: ModelVersion) -> Document:
    model = version.model
    document: Document = {
        **version.document,
        "name": resources.model_name(model),
        "displayName": model.display_name,
        "versionId": str(version.number),
        "versionAliases": version.aliases,
        "artifactUri": version.artifact_uri,
        "createTime": format_time(model.created_at),
        "updateTime": format_time(max(model.updated_at, version.updated_at)),
        "versionCreateTime": format_time(version.created_at),
        "versionUpdateTime": format_time(version.updated_at),
        "modelSourceInfo": {"sourceType": "CUSTOM"},
    }
    pipeline = getattr(version, "training_pipeline", None)
    if pipeline is not None:
        document["trainingPipeline"] = pipeline_name(pipeline)
    texts = {"description": model.description, "versionDescription": version.description}
    document.update({name: text for name, text in texts.items() if text})
    if model.labels:
        document["labels"] = model.labels
    return document


def _model(request: Request, verb: access.Verb, project: str, named: str) -> RegisteredModel:
    tenant = access.project_or_404(request.user, verb, project)
    found = RegisteredModel.objects.select_related("project").filter(project=tenant, model_id=named).first()
    if found is None:
        raise Http404
    return found


def _version(request: Request, verb: access.Verb, project: str, model: str, named: str) -> ModelVersion:
    found = registry.version_of(_model(request, verb, project, model), named)
    if found is None:
        raise Http404
    return ModelVersion.objects.select_related(*OF_VERSION).get(pk=found.pk)


def _plain(change: object) -> object:
    return change[1:] if isinstance(change, str) and change.startswith("-") else change


def _operation(project: str, location: str, number: int) -> str:
    return f"projects/{project}/locations/{location}/operations/{number}"
