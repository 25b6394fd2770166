"""Artifacts of a project: archives of code, Python packages and archives of images that its jobs may bring.

`POST /api/v1/projects/P/artifacts?kind=archive&name=code.tar.gz[&sha256=…]` with the bytes as the body.
"""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

from django.db import transaction
from django.http import Http404, HttpResponseBase
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console import large_bodies
from console.api import errors
from console.api.description import Bytes, Nothing, Query, Time, described, form, one_of, paged
from console.api.errors import BadRequest
from console.api.query import page_size, whole_number
from console.api.storage.uploads import announced_size
from console.api.times import format_time
from console.api.views import TrainyardView, UnreadBody, person
from console.auth import access
from console.large_bodies import BodyWanted
from console.presenters.storage import download
from jobs.artifacts import artifacts, blobs, incoming
from jobs.models import Artifact, Blob
from jobs.models.artifacts import ArtifactKind

Document = dict[str, Any]
USUAL, MOST = 100, 1000


class ArtifactDocument(TypedDict):
    sha256: str
    kind: str
    name: str
    sizeBytes: Bytes
    createTime: Time
    createdBy: str


class Artifacts(TypedDict):
    artifacts: list[ArtifactDocument]
    nextPageToken: NotRequired[str]


KIND = Query("kind", "Only those of this kind.", Annotated[str, one_of(ArtifactKind.values)])
NEW = (
    Query("kind", "What the bytes are.", Annotated[str, one_of(ArtifactKind.values)], required=True),
    Query("name", "The name of the file.", required=True),
    Query("sha256", "The SHA-256 that the bytes must have.", Annotated[str, form(pattern="^[0-9a-f]{64}$")]),
)


class ArtifactsView(TrainyardView):
    """GET lists them, the newest first. POST stores one: 201 for a new one, 200 for bytes that are there already."""

    parser_classes = [UnreadBody]

    @described(
        "List the artifacts of a project, the newest first",
        Artifacts,
        needs="see_files",
        query=(KIND, *paged(USUAL, MOST)),
    )
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

    @described(
        "Store an artifact; 200 for bytes that are there already",
        ArtifactDocument,
        needs="store",
        body=bytes,
        query=NEW,
        statuses=(200, 201),
    )
    def post(self, request: Request, project: str) -> HttpResponseBase:
        row = access.project_or_404(request.user, "store", project)
        kind, name, sha256 = (request.query_params.get(field, "") for field in ("kind", "name", "sha256"))
        artifacts.check(row, kind, name)
        if sha256 and not artifacts.SHA256.fullmatch(sha256):
            raise BadRequest("sha256", "sha256 must be 64 hexadecimal digits in small letters.")
        if not large_bodies.has_come(request._request):
            blobs.check_announced(row, announced_size(request.headers.get("Content-Length")) or 0)
        if large_bodies.is_first_call(request._request):
            return BodyWanted(incoming.new_file(row))
        with large_bodies.received(request._request, row) as file:
            found = file.finish()
            incoming.check_digests(found, sha256=sha256)
            known = artifacts.find_artifact(row, found.sha256)
            made = artifacts.add_file(
                row, kind, name, file.path, found, person(request).username, timezone.now()
            )
        return Response(document(made), status=200 if known else 201)


class ArtifactView(TrainyardView):
    """GET, DELETE of one, by the SHA-256 of its bytes. Jobs that need it keep the bytes until they are deleted."""

    @described("Get an artifact", ArtifactDocument, needs="see_files")
    def get(self, request: Request, project: str, sha256: str) -> Response:
        return Response(document(artifact_or_404(request, "see_files", project, sha256)))

    @described("Delete an artifact", Nothing, needs="store")
    def delete(self, request: Request, project: str, sha256: str) -> Response:
        row = artifact_or_404(request, "store", project, sha256)
        with transaction.atomic():
            artifacts.delete_artifact(row, person(request).username, timezone.now())
        return Response({})


class ContentView(TrainyardView):
    """`GET …/artifacts/SHA256/content`: the bytes, or a range of them."""

    @described(
        "Download an artifact, or a `Range` of it",
        needs="see_files",
        files=("application/octet-stream",),
        statuses=(200, 206),
    )
    def get(self, request: Request, project: str, sha256: str) -> HttpResponseBase:
        row = artifact_or_404(request, "see_files", project, sha256)
        return content_of(row.blob, row.name, request)


def content_of(blob: Blob, name: str, request: Request) -> HttpResponseBase:
    """The bytes, or the range of them that is asked for; 416 where there are none in it."""
    answer = download.of_blob(blob, name, request.headers.get("Range", ""))
    if answer.status_code != 416:
        return answer
    refused = errors.error_response(416, f"There are {blob.size} bytes.")
    refused["Content-Range"] = answer["Content-Range"]
    return refused


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
