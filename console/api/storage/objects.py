"""Objects as Google's storage API has them, without their uploads: lists, metadata, bytes, copies, deletion."""

from __future__ import annotations

import base64
import binascii
from itertools import chain
from typing import Any

from django.db import transaction
from django.http import Http404, HttpResponse, HttpResponseBase
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.errors import BadRequest
from console.api.query import whole_number
from console.api.storage import resources
from console.api.storage.resources import object_document
from console.api.storage.views import (
    StorageView,
    actor,
    bucket_or_404,
    check_conditions,
    number,
    object_or_404,
)
from console.presenters.storage import download
from jobs.artifacts import incoming, objects, room
from jobs.artifacts.objects import About
from jobs.models import StoredObject

MOST = 1000
MAX_SOURCES = 32
Document = dict[str, Any]


class ObjectsView(StorageView):
    """`GET /storage/v1/b/B/o?prefix=&delimiter=&pageToken=&maxResults=`."""

    def get(self, request: Request, bucket: str) -> Response:
        row = bucket_or_404(request, "see_files", bucket)
        asked = request.query_params
        limit = min(whole_number("maxResults", asked.get("maxResults") or "0") or MOST, MOST)
        first = asked.get("startOffset", "").encode()
        begin = max(position(asked.get("pageToken", "")), first)
        found = objects.list_objects(row, asked.get("prefix", ""), asked.get("delimiter", ""), begin, limit)
        answer: Document = {"kind": "storage#objects"}
        if found.objects:
            answer["items"] = [object_document(each, request) for each in found.objects]
        if found.prefixes:
            answer["prefixes"] = found.prefixes
        if found.next_position:
            answer["nextPageToken"] = base64.urlsafe_b64encode(found.next_position).decode()
        return Response(answer)


def position(token: str) -> bytes:
    """Where a page of a list begins. Raises BadRequest."""
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise BadRequest("pageToken", "pageToken must be that of an earlier page.") from None


class ObjectView(StorageView):
    """`/storage/v1/b/B/o/NAME`: its metadata, with `alt=media` its bytes; PATCH, DELETE."""

    def get(self, request: Request, bucket: str, name: str) -> HttpResponseBase:
        row = object_or_404(request, "see_files", bucket, name)
        check_conditions(request, row)
        if request.query_params.get("alt") == "media":
            return media(request, row)
        if request.headers.get("If-None-Match", "") == resources.etag(row):
            return HttpResponse(status=304)
        return Response(object_document(row, request))

    def patch(self, request: Request, bucket: str, name: str) -> Response:
        row = object_or_404(request, "store", bucket, name)
        body = dict(request.data) if isinstance(request.data, dict) else {}
        _, about, _ = resources.about(body)
        with transaction.atomic():
            room.lock(row.bucket.project_id)
            row = object_or_404(request, "store", bucket, name)
            check_conditions(request, row)
            if "contentType" in body:
                row.content_type = about.content_type
            if "metadata" in body:
                # A name with null is taken away, as Google's does; the others stay.
                given = body["metadata"] or dict.fromkeys(row.metadata)
                kept = {
                    name: value for name, value in row.metadata.items() if given.get(name, "") is not None
                }
                row.metadata = {**kept, **about.metadata}
            row.headers = {**row.headers, **about.headers}
            objects.check(row.bucket, row.name, About(row.content_type, row.metadata, row.headers))
            row.metageneration += 1
            row.updated_at = timezone.now()
            row.save(force_update=True)
        return Response(object_document(row, request))

    def delete(self, request: Request, bucket: str, name: str) -> Response:
        holder = bucket_or_404(request, "store", bucket)
        with transaction.atomic():
            room.lock(holder.project_id)
            row = object_or_404(request, "store", bucket, name)
            check_conditions(request, row)
            objects.delete_object(row, actor(request).username, timezone.now())
        return Response(status=204)


class MediaView(StorageView):
    """`GET /download/storage/v1/b/B/o/NAME?alt=media`: its bytes."""

    def get(self, request: Request, bucket: str, name: str) -> HttpResponseBase:
        row = object_or_404(request, "see_files", bucket, name)
        check_conditions(request, row)
        return media(request, row)


def media(request: Request, row: StoredObject) -> HttpResponseBase:
    answer = download.of_blob(row.blob, row.name, request.headers.get("Range", ""), row.content_type)
    hashes = [f"crc32c={row.blob.crc32c}", *([f"md5={row.blob.md5}"] if row.blob.md5 else [])]
    answer["X-Goog-Hash"] = ",".join(hashes)
    answer["X-Goog-Generation"] = str(row.generation)
    answer["X-Goog-Metageneration"] = str(row.metageneration)
    answer["X-Goog-Stored-Content-Length"] = str(row.blob.size)
    answer["X-Goog-Stored-Content-Encoding"] = row.headers.get("contentEncoding", "identity")
    answer["ETag"] = f'"{resources.etag(row)}"'
    if "contentEncoding" in row.headers:
        answer["Content-Encoding"] = row.headers["contentEncoding"]
    return answer


class CopyView(StorageView):
    """`POST /storage/v1/b/B/o/NAME/rewriteTo/b/B2/o/NAME2` (or `copyTo`), inside one project: no byte is moved."""

    def post(self, request: Request, bucket: str, name: str, how: str, to: str, new_name: str) -> Response:
        source = object_or_404(request, "see_files", bucket, name)
        holder = bucket_or_404(request, "store", to)
        if holder.project_id != source.bucket.project_id:
            raise BadRequest(
                "destinationBucket", "The bucket is of another project: download, and upload there."
            )
        _, given, _ = resources.about(request.data if isinstance(request.data, dict) else {})
        about = About(
            given.content_type or source.content_type,
            given.metadata or source.metadata,
            given.headers or source.headers,
            number(request, "ifGenerationMatch"),
        )
        objects.check(holder, new_name, about)
        with transaction.atomic():
            room.lock(holder.project_id)
            source = object_or_404(request, "see_files", bucket, name)
            row = objects.point(holder, new_name, source.blob, about, actor(request).username, timezone.now())
        document = object_document(row, request)
        if how == "copyTo":
            return Response(document)
        size = str(source.blob.size)
        return Response(
            {
                "kind": "storage#rewriteResponse",
                "totalBytesRewritten": size,
                "objectSize": size,
                "done": True,
                "resource": document,
            }
        )


class ComposeView(StorageView):
    """`POST /storage/v1/b/B/o/NAME/compose`: the bytes of up to 32 objects of the bucket, one after the other."""

    def post(self, request: Request, bucket: str, name: str) -> Response:
        holder = bucket_or_404(request, "store", bucket)
        body = request.data if isinstance(request.data, dict) else {}
        named = body.get("sourceObjects")
        if not isinstance(named, list) or not 0 < len(named) <= MAX_SOURCES:
            raise BadRequest(
                "sourceObjects", f"sourceObjects must be 1 to {MAX_SOURCES} objects of the bucket."
            )
        sources = [self._source(holder.name, each, request) for each in named]
        _, about, _ = resources.about(
            body.get("destination") or {}, sources[0].content_type, number(request, "ifGenerationMatch")
        )
        objects.check(holder, name, about)
        with incoming.incoming(holder.project) as file:
            found = incoming.fill(file, chain.from_iterable(map(objects.open_object, sources)))
            row = objects.add_file(
                holder, name, file.path, found, about, actor(request).username, timezone.now()
            )
        return Response(object_document(row, request))

    def _source(self, bucket: str, each: object, request: Request) -> StoredObject:
        name = each.get("name") if isinstance(each, dict) else None
        if not isinstance(name, str):
            raise BadRequest("sourceObjects", "Each of sourceObjects must have a name.")
        try:
            return object_or_404(request, "see_files", bucket, name)
        except Http404:
            raise BadRequest("sourceObjects", f"There is no object {name[:200]} in the bucket.") from None
