"""Credentials of image registries, of projects and for locations: written, listed by registry, never read back."""

from __future__ import annotations

from typing import Any, TypedDict

from django.http import Http404
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from agents.models import Location
from console.api.description import Nothing, Time, described
from console.api.request_body import RequestBody
from console.api.times import format_time
from console.api.views import TrainyardView, person
from console.auth import access
from jobs.models import RegistryCredential
from jobs.secrets import image_registries
from jobs.secrets.image_registries import Owner

Document = dict[str, Any]


class RegistryDocument(TypedDict):
    """Never with its user and password."""

    registry: str
    updateTime: Time
    updatedBy: str


class Registries(TypedDict):
    imageRegistries: list[RegistryDocument]


class RegistryBody(TypedDict):
    username: str
    password: str


class RegistriesView(TrainyardView):
    """GET lists the registries: who set the credential of each, and when."""

    @described(
        "List the image registries for which there is a credential", Registries, needs="submit", own="manage"
    )
    def get(self, request: Request, **names: str) -> Response:
        rows = image_registries.of(self.owner(request, **names))
        return Response({"imageRegistries": [document(row) for row in rows]})

    def owner(self, request: Request, **names: str) -> Owner:
        """Whose they are. Checks that the person may see them."""
        raise NotImplementedError


class RegistryView(TrainyardView):
    """PUT `{"username": "...", "password": "..."}` sets the credential, DELETE deletes it."""

    @described(
        "Set the credential of an image registry",
        RegistryDocument,
        needs="manage_secrets",
        own="manage",
        body=RegistryBody,
        statuses=(200, 201),
    )
    def put(self, request: Request, registry: str, **names: str) -> Response:
        owner, body = self.owner(request, **names), RequestBody(request, RegistryBody)
        row, new = image_registries.put(
            owner,
            registry,
            body.get("username"),
            body.get("password"),
            person(request).username,
            timezone.now(),
        )
        return Response(document(row), status=201 if new else 200)

    @described("Delete the credential of an image registry", Nothing, needs="manage_secrets", own="manage")
    def delete(self, request: Request, registry: str, **names: str) -> Response:
        owner = self.owner(request, **names)
        if not image_registries.remove(owner, registry, person(request).username, timezone.now()):
            raise Http404
        return Response({})

    def owner(self, request: Request, **names: str) -> Owner:
        """Whose it is. Checks that the person may set it."""
        raise NotImplementedError


class ProjectRegistriesView(RegistriesView):
    """`GET /api/v1/projects/<p>/imageRegistries`: for those who submit jobs there."""

    def owner(self, request: Request, **names: str) -> Owner:
        return access.project_or_404(request.user, "submit", names["project"])


class ProjectRegistryView(RegistryView):
    """`PUT, DELETE /api/v1/projects/<p>/imageRegistries/<registry>`: for admins of the project."""

    def owner(self, request: Request, **names: str) -> Owner:
        return access.project_or_404(request.user, "manage_secrets", names["project"])


class LocationRegistriesView(RegistriesView):
    """`GET /api/v1/locations/<l>/imageRegistries`: for admins."""

    def owner(self, request: Request, **names: str) -> Owner:
        return access.get_or_404(request.user, "manage", Location.objects.all(), name=names["location"])


class LocationRegistryView(RegistryView):
    """`PUT, DELETE /api/v1/locations/<l>/imageRegistries/<registry>`: for admins."""

    def owner(self, request: Request, **names: str) -> Owner:
        return access.get_or_404(request.user, "manage", Location.objects.all(), name=names["location"])


def document(row: RegistryCredential) -> Document:
    return {
        "registry": row.registry,
        "updateTime": format_time(row.changed_at),
        "updatedBy": row.changed_by,
    }
