"""Vertex AI's operations. All are deletions, and have ended before they are answered."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import Http404
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console.api import resources
from console.api.views import GoogleView
from console.auth import access
from jobs.models import Job, ModelVersion, Project, RegisteredModel, TrainingPipeline, TuningJob


class OperationView(GoogleView):
    """P/operations/{id}: GET. DELETE forgets nothing, as it only tells that the client is not interested any more."""

    def get(self, request: Request, project: str, location: str, operation: str) -> Response:
        return _found(request, project, location, operation)

    def delete(self, request: Request, project: str, location: str, operation: str) -> Response:
        _found(request, project, location, operation)
        return Response({})


class WaitView(GoogleView):
    """P/operations/{id}:wait. Nothing is left to wait for."""

    def post(self, request: Request, project: str, location: str, operation: str) -> Response:
        return _found(request, project, location, operation)


class CancelView(GoogleView):
    """P/operations/{id}:cancel. What has ended stays as it is, as with Google."""

    def post(self, request: Request, project: str, location: str, operation: str) -> Response:
        _found(request, project, location, operation)
        return Response({})


def _found(request: Request, project: str, location: str, operation: str) -> Response:
    tenant = access.project_or_404(request.user, "see", project)
    at = _deleted_at(tenant, int(operation))
    if at is None:
        raise Http404
    name = f"projects/{project}/locations/{location}/operations/{operation}"
    return Response(resources.delete_operation(name, at))


def _deleted_at(project: Project, number: int) -> datetime | None:
    """When the job, tuning job, pipeline, model or version with this number was deleted."""
    kinds: tuple[tuple[Any, dict[str, Project]], ...] = (
        (Job, {"project": project}),
        (TrainingPipeline, {"project": project}),
        (TuningJob, {"project": project}),
        (RegisteredModel, {"project": project}),
        (ModelVersion, {"model__project": project}),
    )
    for kind, of_project in kinds:
        rows = kind.every.filter(
            pk=number, deleted_at__isnull=False, deleted_at__lte=timezone.now(), **of_project
        )
        found: datetime | None = rows.values_list("deleted_at", flat=True).first()
        if found is not None:
            return found
    return None
