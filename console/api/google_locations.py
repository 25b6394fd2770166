"""The locations of a project as Google's APIs list them."""

from __future__ import annotations

from typing import Any

from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.views import GoogleView
from console.auth import access
from jobs.models import Project
from jobs.projects import locations


class LocationsView(GoogleView):
    """GET /v1/projects/{project}/locations: those that take jobs of the project, in one page."""

    def get(self, request: Request, project: str) -> Response:
        tenant = access.project_or_404(request.user, "see", project)
        return Response({"locations": [_document(tenant, name) for name in locations.serving(tenant)]})


class LocationView(GoogleView):
    """GET /v1/projects/{project}/locations/{location}."""

    def get(self, request: Request, project: str, location: str) -> Response:
        tenant = access.project_or_404(request.user, "see", project)
        if location not in locations.serving(tenant):
            raise Http404
        return Response(_document(tenant, location))


def _document(project: Project, name: str) -> dict[str, Any]:
    return {
        "name": f"projects/{project.name}/locations/{name}",
        "locationId": name,
        "displayName": name,
        "labels": {"cloud.googleapis.com/region": name},
    }
