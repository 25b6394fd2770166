"""Locations: list them, bind one to projects, say which directories it shares and which images it uses."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from django.db import transaction
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from agents.models import Location
from console.api.description import described
from console.api.errors import BadRequest
from console.api.request_body import RequestBody
from console.api.views import TrainyardView, person
from console.auth import access
from console.presenters.hosts.locations import LocationRow, location_rows
from jobs.maintenance import location_bindings, location_images, location_storage

Document = dict[str, Any]


class LocationDocument(TypedDict):
    """`projects` has those that the person may see. `allProjects`: it is bound to none, and serves all. `storage`: the
    directory that its hosts share for each bucket. `images`: what is used in place of other images."""

    name: str
    title: str
    hosts: int
    allProjects: bool
    projects: list[str]
    storage: NotRequired[dict[str, str]]
    images: NotRequired[dict[str, str]]


class Locations(TypedDict):
    locations: list[LocationDocument]


class LocationChange(TypedDict, total=False):
    """`projects` binds it, `allProjects` unbinds it; `storage` and `images` are replaced as a whole."""

    projects: list[str] | None
    allProjects: bool | None
    storage: dict[str, str] | None
    images: dict[str, str] | None


class LocationsView(TrainyardView):
    """`GET /api/v1/locations`: the locations that this person may see."""

    @described("List the locations that you may see", Locations, needs="see")
    def get(self, request: Request) -> Response:
        access.require(request.user, "see", Location)
        return Response({"locations": [_document(row) for row in location_rows(person(request))]})


class LocationView(TrainyardView):
    """`GET /api/v1/locations/<name>`; `PATCH` with `{"projects": [...]}` binds it; `{"allProjects": true}` unbinds.
    `{"storage": {"bucket": "/directory", "*": "/directory"}}`: what its hosts share.
    `{"images": {"us-docker.pkg.dev/vertex-ai/training/*": "host"}}`: all its aliases of images."""

    @described("Get a location", LocationDocument, needs="see")
    def get(self, request: Request, location: str) -> Response:
        row = access.get_or_404(request.user, "see", Location.objects.all(), name=location)
        return Response(_document(location_rows(person(request), row.name)[0]))

    @described(
        "Bind a location to projects, set its storage and its images",
        LocationDocument,
        needs="manage",
        body=LocationChange,
    )
    def patch(self, request: Request, location: str) -> Response:
        row = access.get_or_404(request.user, "manage", Location.objects.all(), name=location)
        body = RequestBody(request, LocationChange)
        actor, now = person(request).username, timezone.now()
        with transaction.atomic():
            if (storage := body.get("storage")) is not None:
                example = '{"bucket": "/data/bucket", "*": "/data/buckets"}'
                location_storage.share(row, _texts("storage", storage, example), actor, now)
            if (images := body.get("images")) is not None:
                example = '{"us-docker.pkg.dev/vertex-ai/training/*": "host"}'
                location_images.replace(row, _texts("images", images, example), actor, now)
            if (storage is None and images is None) or {"projects", "allProjects"} & set(request.data):
                location_bindings.bind(row.name, _projects(body), actor, now)
        return Response(_document(location_rows(person(request), row.name)[0]))


def _texts(name: str, given: object, example: str) -> dict[str, str]:
    if isinstance(given, dict) and all(isinstance(value, str) for value in given.values()):
        return {str(key): value for key, value in given.items()}
    raise BadRequest(name, f"{name} must be an object such as {example}.")


def _projects(body: RequestBody) -> list[str]:
    """The projects that are asked for; none for all."""
    projects, everyone = body.get("projects"), body.get("allProjects")
    if everyone is True and not projects:
        return []
    named = isinstance(projects, list) and all(isinstance(name, str) for name in projects)
    if everyone in (None, False) and named and projects:
        return list(projects)
    raise BadRequest(
        "projects", 'projects must be a list of names of projects; say "allProjects": true to serve all.'
    )


def _document(row: LocationRow) -> Document:
    """`projects` has those that the person may see. `allProjects`: it is bound to none, and serves all."""
    return {
        "name": row.name,
        "title": row.title,
        "hosts": row.hosts,
        "allProjects": not row.bound,
        "projects": list(row.projects),
        **({"storage": dict(row.storage)} if row.storage else {}),
        **({"images": dict(row.images)} if row.images else {}),
    }
