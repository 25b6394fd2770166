"""Buckets of a project and their objects. The same objects as Google's storage API has (api/storage/)."""

from __future__ import annotations

import base64
from typing import Annotated, Any, NotRequired, TypedDict

from django.db import transaction
from django.http import Http404, HttpResponseBase
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console import large_bodies
from console.api.description import Bytes, Nothing, Query, Time, described, form, one_of, paged
from console.api.errors import BadRequest
from console.api.projects.artifacts import content_of
from console.api.query import page_size
from console.api.request_body import RequestBody
from console.api.storage.objects import position
from console.api.storage.uploads import announced_size
from console.api.times import format_time
from console.api.views import TrainyardView, UnreadBody, person
from console.auth import access
from console.large_bodies import BodyWanted
from jobs.artifacts import blobs, buckets, expiry, incoming, objects
from jobs.artifacts.objects import About
from jobs.models import Bucket, StoredObject

Document = dict[str, Any]
USUAL, MOST = 100, 1000


class BucketDocument(TypedDict):
    """`keepDaysWaits`: why nothing is deleted by its age at this moment."""

    name: str
    uri: str
    createTime: Time
    createdBy: str
    keepDays: NotRequired[int]
    keepDaysWaits: NotRequired[str]


class BucketChange(TypedDict):
    """`keepDays`: objects that are older are deleted by themselves; null: none is."""

    keepDays: Annotated[int | None, form(minimum=1, maximum=expiry.MOST_DAYS)]


class Buckets(TypedDict):
    buckets: list[BucketDocument]


class NewBucket(TypedDict):
    name: str


class ObjectDocument(TypedDict):
    """`generation` changes with each new content."""

    name: str
    uri: str
    generation: str
    sizeBytes: Bytes
    sha256: str
    crc32c: str
    contentType: str
    updateTime: Time
    createdBy: str


class Objects(TypedDict):
    """`prefixes`: of the objects that have the delimiter behind the prefix, the beginning up to it."""

    objects: list[ObjectDocument]
    prefixes: list[str]
    nextPageToken: NotRequired[str]


LISTED = (
    Query("prefix", "Only objects whose name begins so."),
    Query("delimiter", "Such as `/`: list one directory."),
    *paged(USUAL, MOST),
)
MEDIA = Query(
    "alt", "`media`: the bytes, not what is known about them.", Annotated[str, one_of(("json", "media"))]
)


class BucketsView(TrainyardView):
    """GET lists them. POST `{"name": …}` makes one."""

    @described("List the buckets of a project", Buckets, needs="see_files")
    def get(self, request: Request, project: str) -> Response:
        row = access.project_or_404(request.user, "see_files", project)
        return Response({"buckets": [bucket_document(each) for each in Bucket.objects.filter(project=row)]})

    @described("Make a bucket", BucketDocument, needs="store", body=NewBucket, statuses=(201,))
    def post(self, request: Request, project: str) -> Response:
        row = access.project_or_404(request.user, "store", project)
        name = RequestBody(request, NewBucket).text("name")
        with transaction.atomic():
            made = buckets.create(row, name, person(request).username, timezone.now())
        return Response(bucket_document(made), status=201)


class BucketView(TrainyardView):
    """GET, PATCH `{"keepDays": 30}`, DELETE of one. Only an empty one can be deleted."""

    @described("Get a bucket", BucketDocument, needs="see_files")
    def get(self, request: Request, project: str, bucket: str) -> Response:
        return Response(bucket_document(bucket_or_404(request, "see_files", project, bucket)))

    @described("Say for how many days objects are kept", BucketDocument, needs="manage", body=BucketChange)
    def patch(self, request: Request, project: str, bucket: str) -> Response:
        row = bucket_or_404(request, "manage", project, bucket)
        body = RequestBody(request, BucketChange)
        days = body.get("keepDays")
        if "keepDays" not in body or not (days is None or type(days) is int):
            raise BadRequest("keepDays", "keepDays must be a whole number of days, or null.")
        with transaction.atomic():
            expiry.set_rule(row, days, person(request).username, timezone.now())
        return Response(bucket_document(row))

    @described("Delete an empty bucket", Nothing, needs="store")
    def delete(self, request: Request, project: str, bucket: str) -> Response:
        row = bucket_or_404(request, "store", project, bucket)
        with transaction.atomic():
            buckets.delete(row, person(request).username, timezone.now())
        return Response({})


class ObjectsView(TrainyardView):
    """`GET …/buckets/B/objects?prefix=&delimiter=/&pageSize=&pageToken=`."""

    @described("List the objects of a bucket by name", Objects, needs="see_files", query=LISTED)
    def get(self, request: Request, project: str, bucket: str) -> Response:
        row = bucket_or_404(request, "see_files", project, bucket)
        asked = request.query_params
        found = objects.list_objects(
            row,
            asked.get("prefix", ""),
            asked.get("delimiter", ""),
            position(asked.get("pageToken", "")),
            page_size(asked, USUAL, MOST),
        )
        more = {"nextPageToken": base64.urlsafe_b64encode(found.next_position).decode()}
        return Response(
            {
                "objects": [document(each) for each in found.objects],
                "prefixes": found.prefixes,
                **(more if found.next_position else {}),
            }
        )


class ObjectView(TrainyardView):
    """`…/buckets/B/objects/NAME`: GET says what it is, and with `alt=media` sends its bytes; PUT stores the body under
    this name; DELETE deletes it."""

    parser_classes = [UnreadBody]

    @described(
        "Get an object, or its bytes",
        ObjectDocument,
        needs="see_files",
        query=(MEDIA,),
        files=("*/*",),
        statuses=(200, 206),
    )
    def get(self, request: Request, project: str, bucket: str, name: str) -> HttpResponseBase:
        row = self._object(request, "see_files", project, bucket, name)
        if request.query_params.get("alt") == "media":
            return content_of(row.blob, row.name, request)
        return Response(document(row))

    @described("Store an object", ObjectDocument, needs="store", body=bytes)
    def put(self, request: Request, project: str, bucket: str, name: str) -> HttpResponseBase:
        row = bucket_or_404(request, "store", project, bucket)
        about = About(request.headers.get("Content-Type", ""))
        objects.check(row, name, about)
        if not large_bodies.has_come(request._request):
            blobs.check_announced(row.project, announced_size(request.headers.get("Content-Length")) or 0)
        if large_bodies.is_first_call(request._request):
            return BodyWanted(incoming.new_file(row.project))
        with large_bodies.received(request._request, row.project) as file:
            found = file.finish()
            made = objects.add_file(
                row, name, file.path, found, about, person(request).username, timezone.now()
            )
        return Response(document(made))

    @described("Delete an object", Nothing, needs="store")
    def delete(self, request: Request, project: str, bucket: str, name: str) -> Response:
        with transaction.atomic():
            row = self._object(request, "store", project, bucket, name)
            objects.delete_object(row, person(request).username, timezone.now())
        return Response({})

    def _object(
        self, request: Request, verb: access.Verb, project: str, bucket: str, name: str
    ) -> StoredObject:
        row = objects.in_bucket(bucket_or_404(request, verb, project, bucket), name)
        if row is None:
            raise Http404
        return row


def bucket_or_404(request: Request, verb: access.Verb, project: str, name: str) -> Bucket:
    row = buckets.find(access.project_or_404(request.user, verb, project), name)
    if row is None:
        raise Http404
    return row


def bucket_document(row: Bucket) -> Document:
    waits = expiry.waits(timezone.now()) if row.keep_days else ""
    return {
        "name": row.name,
        "uri": f"gs://{row.name}/",
        "createTime": format_time(row.created_at),
        "createdBy": row.created_by,
        **({"keepDays": row.keep_days} if row.keep_days else {}),
        **({"keepDaysWaits": waits} if waits else {}),
    }


def document(row: StoredObject) -> Document:
    return {
        "name": row.name,
        "uri": f"gs://{row.bucket.name}/{row.name}",
        "generation": str(row.generation),
        "sizeBytes": str(row.blob.size),
        "sha256": row.blob.sha256,
        "crc32c": row.blob.crc32c,
        "contentType": row.content_type,
        "updateTime": format_time(row.updated_at),
        "createdBy": row.created_by,
    }
