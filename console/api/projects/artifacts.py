"""Artifacts of a project: archives of code, Python packages and archives of images that its jobs may bring.

`POST /api/v1/projects/P/artifacts?kind=archive&name=code.tar.gz[&sha256=…]` with the bytes as the body.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.http import Http404, HttpResponseBase
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console import large_bodies
from console.api.errors import BadRequest
from console.api.query import page_size, whole_number
from console.api.storage.uploads import announced_size
from console.api.times import format_time
from console.api.views import TrainyardView, UnreadBody, person
from console.auth import access
from console.large_bodies import BodyWanted
from console.presenters.storage import download
from jobs.artifacts import artifacts, blobs, incoming, room
from jobs.models import Artifact, Project

Document = dict[str, Any]
USUAL, MOST = 100, 1000


class ArtifactsView(TrainyardView):
    """GET lists them, the newest first. POST stores one: 201 for a new one, 200 for bytes that are there already."""

    parser_classes = [UnreadBody]

    def get(self, request: Request, project: str) -> Response:
        row = access.project_or_404(request.user, "see_files", project)
        asked = request.query_params
        size = page_size(asked, USUAL, MOST)
        rows = artifacts.of(row)
        if asked.get("kind"):
            rows = rows.filter(kind=asked["kind"])
        if asked.get("pageToken"):
            rows = rows.filter(pk__lt=whole_number("pageToken", asked["pageToken"]))
        found = list(rows[: size + 1])
        more = {"nextPageToken": str(found[size - 1].pk)} if len(found) > size else {}
        return Response({"artifacts": [document(each) for each in found[:size]], **more})

    def post(self, request: Request, project: str) -> HttpResponseBase:
        row = access.project_or_404(request.user, "store", project)
        kind, name, sha256 = (request.query_params.get(field, "") for field in ("kind", "name", "sha256"))
        artifacts.check(row, kind, name)
        if sha256 and not artifacts.SHA256.fullmatch(sha256):
            raise BadRequest("sha256", "sha256 must be 64 hexadecimal digits in small letters.")
        most = _room_for(request, row)
        if large_bodies.is_first_call(request._request):
            return BodyWanted(large_bodies.incoming(most))
        with large_bodies.received(request._request, most) as file:
            found = file.finish()
            incoming.check_digests(found, sha256=sha256)
            known = artifacts.find_artifact(row, found.sha256)
            made = artifacts.add_file(
                row, kind, name, file.path, found, person(request).username, timezone.now()
            )
        return Response(document(made), status=200 if known else 201)


def _room_for(request: Request, project: Project) -> int | None:
    """How many bytes may come. Raises Exhausted before any has."""
    blobs.check_announced(project, announced_size(request.headers.get("Content-Length")) or 0)
    return room.free_bytes(project)


class ArtifactView(TrainyardView):
    """GET, DELETE of one, by the SHA-256 of its bytes. Jobs that need it keep the bytes until they are deleted."""

    def get(self, request: Request, project: str, sha256: str) -> Response:
        return Response(document(artifact_or_404(request, "see_files", project, sha256)))

    def delete(self, request: Request, project: str, sha256: str) -> Response:
        row = artifact_or_404(request, "store", project, sha256)
        with transaction.atomic():
            artifacts.delete_artifact(row, person(request).username, timezone.now())
        return Response({})


class ContentView(TrainyardView):
    """`GET …/artifacts/SHA256/content`: the bytes, or a range of them."""

    def get(self, request: Request, project: str, sha256: str) -> HttpResponseBase:
        row = artifact_or_404(request, "see_files", project, sha256)
        return download.of_blob(row.blob, row.name, request.headers.get("Range", ""))


def artifact_or_404(request: Request, verb: access.Verb, project: str, sha256: str) -> Artifact:
    row = artifacts.find_artifact(access.project_or_404(request.user, verb, project), sha256)
    if row is None:
        raise Http404
    return row


def document(row: Artifact) -> Document:
    return {
        "sha256": row.sha256,
        "kind": row.kind,
        "name": row.name,
        "sizeBytes": str(row.blob.size),
        "createTime": format_time(row.created_at),
        "createdBy": row.created_by,
    }
