"""Uploads as Google's storage API has them: `uploadType` is media, multipart or resumable.

`POST /upload/storage/v1/b/B/o?uploadType=…` begins each of them. A resumable one goes on with PUT at the address that
its answer names. That address has a secret key, which stands for the person who began it: what they may do is asked
again at each request.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from django.db import transaction
from django.http import Http404, HttpResponse, HttpResponseBase
from django.utils import timezone
from rest_framework.exceptions import NotAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from console import large_bodies
from console.api.errors import BadRequest
from console.api.storage import multipart, resources
from console.api.storage.resources import object_document
from console.api.storage.views import StorageView, actor, bucket_or_404, number
from console.api.views import absolute_url
from console.auth import access
from console.large_bodies import BodyWanted, Received
from jobs.artifacts import blobs, incoming, objects, uploads
from jobs.artifacts.incoming import Digests, Incoming
from jobs.artifacts.objects import About
from jobs.artifacts.uploads import Announced, OutOfOrder, Part
from jobs.models import Bucket, Project, StoredObject, Upload

Way = Literal["media", "multipart", "resumable"]
# What the metadata of an object may have, and with it a multipart upload beyond its bytes.
METADATA_BYTES = 64 * 1024
# Larger ones should be resumable; this is more than Google's clients send at once.
MULTIPART_BYTES = 128 * 1024 * 1024
RANGE = re.compile(r"bytes (?:(\d{1,15})-(\d{1,15})|\*)/(?:(\d{1,15})|\*)")
PERMANENT = {"Cache-Control": "private, no-store"}


class _Begin(StorageView):
    """`POST /upload/storage/v1/b/B/o?uploadType=…`."""

    # The body is read by `large_bodies`.
    parser_classes: list[Any] = []

    def post(self, request: Request, bucket: str) -> HttpResponseBase:
        row = bucket_or_404(request, "store", bucket)
        way = request.query_params.get("uploadType", "")
        if way not in ("media", "multipart", "resumable"):
            raise BadRequest("uploadType", "uploadType must be media, multipart or resumable.")
        sink = self._sink(request, row, way)
        if large_bodies.is_first_call(request._request):
            file = incoming.new_file(*sink)
            # The place that it takes is its project's, also where its bytes take nothing of the quota.
            file.share = incoming.share_of_project(row.project_id)
            return BodyWanted(file)
        with large_bodies.received(request._request, *sink) as file:
            if way == "resumable":
                return self._begin(request, row, file)
            stored = (
                self._media(request, row, file) if way == "media" else self._multipart(request, row, file)
            )
            return Response(object_document(stored, request))

    def _sink(self, request: Request, row: Bucket, way: str) -> tuple[Project | None, int | None, bool]:
        """Whose quota the bytes take as they come, how many may come, and whether their MD5 is asked for.

        Raises Refused before any has come."""
        if way == "resumable":
            return None, METADATA_BYTES, False
        if not large_bodies.has_come(request._request):
            size = announced_size(request.headers.get("Content-Length"))
            blobs.check_announced(
                row.project, max((size or 0) - METADATA_BYTES, 0) if way == "multipart" else size or 0
            )
        if way == "multipart":
            return None, MULTIPART_BYTES, False
        name, about, _ = self._asked({}, request, "")
        objects.check(row, name, about)
        return row.project, None, "Content-Md5" in request.headers

    def _media(self, request: Request, row: Bucket, file: Incoming) -> StoredObject:
        name, about, _ = self._asked({}, request, request.headers.get("Content-Type", ""))
        wanted = Digests(0, "", *_hashes(request))
        return _store(request, row, name, about, wanted, file)

    def _multipart(self, request: Request, row: Bucket, file: Incoming) -> StoredObject:
        file.finish()
        found = multipart.read(file.path, request.headers.get("Content-Type", ""))
        name, about, wanted = self._asked(found.metadata, request, found.content_type)
        objects.check(row, name, about)
        with incoming.incoming(row.project, with_md5=bool(wanted.md5)) as inner:
            for piece in multipart.bytes_of(file.path, found.start, found.end):
                inner.write(piece)
            return _store(request, row, name, about, wanted, inner)

    def _begin(self, request: Request, row: Bucket, file: Incoming) -> Response:
        file.finish()
        text = file.path.read_bytes()
        body = multipart.json_of(text) if text.strip() else {}
        name, about, wanted = self._asked(body, request, request.headers.get("X-Upload-Content-Type", ""))
        size = announced_size(request.headers.get("X-Upload-Content-Length"))
        announced = Announced(size, wanted.crc32c, wanted.md5)
        with transaction.atomic():
            _, key = uploads.begin(row, name, about, announced, actor(request), timezone.now())
        path = f"/upload/storage/v1/b/{row.name}/o?uploadType=resumable&upload_id={key}"
        headers = {**PERMANENT, "Location": absolute_url(request, path), "X-GUploader-UploadID": key}
        return Response({}, headers=headers)

    def _asked(self, body: object, request: Request, usual: str) -> tuple[str, About, Digests]:
        name, about, wanted = resources.about(body, usual, number(request, "ifGenerationMatch"))
        return request.query_params.get("name") or name, about, wanted


def _store(
    request: Request, row: Bucket, name: str, about: About, wanted: Digests, file: Incoming
) -> StoredObject:
    found = file.finish()
    incoming.check_digests(found, crc32c=wanted.crc32c, md5=wanted.md5)
    return objects.add_file(row, name, file.path, found, about, actor(request).username, timezone.now())


def _hashes(request: Request) -> tuple[str, str]:
    """The CRC32C and the MD5 that headers announce; empty where they do not."""
    given = dict(
        part.strip().split("=", 1)
        for part in request.headers.get("X-Goog-Hash", "").split(",")
        if "=" in part
    )
    return given.get("crc32c", ""), request.headers.get("Content-Md5", "")


class UploadView(_Begin):
    """Besides POST, which begins: `PUT, DELETE …?uploadType=resumable&upload_id=KEY`, which sends more bytes, asks how
    many there are, or cancels."""

    def get_permissions(self) -> list[Any]:
        """The key in the address is enough to go on: it stands for the person who began."""
        return list(super().get_permissions()) if self.request.method == "POST" else []

    def handle_exception(self, exc: Exception) -> Any:
        if isinstance(exc, OutOfOrder):
            return _so_far(exc.size)
        return super().handle_exception(exc)

    def put(self, request: Request, bucket: str) -> HttpResponseBase:
        row = self._upload(request, bucket)
        start, end, total = _content_range(request)
        if "Content-Range" not in request.headers:
            # The body is all that there is.
            total = announced_size(request.headers.get("Content-Length"))
        if row.stored is not None:
            return Response(object_document(row.stored, request))
        if total is not None and row.size is not None and total != row.size:
            raise BadRequest("Content-Range", f"The upload was announced with {row.size} bytes, not {total}.")
        if start is None and total is None:
            return _so_far(uploads.received(row))
        if total is not None and row.size is None:
            with transaction.atomic():
                uploads.announce(row, total)
        most = uploads.most(row)
        wanted = getattr(request._request, large_bodies.RECEIVED, False)
        if wanted is None:
            return BodyWanted(Part(row, start if start is not None else uploads.received(row), most))
        part = wanted.sink if isinstance(wanted, Received) else Part(row, start or 0, most)
        assert isinstance(part, Part)
        try:
            return self._answer(request, row, part, wanted, end, total)
        finally:
            part.discard()

    def _answer(
        self, request: Request, row: Upload, part: Part, found: Any, end: int | None, total: int | None
    ) -> HttpResponseBase:
        if isinstance(found, Received):
            if found.problem is not None:
                raise found.problem
        else:
            large_bodies.fill(part, request._request)
        complete = not isinstance(found, Received) or found.complete
        # Without a range and a length, the body ends where it ends.
        whole = total if total is not None else part.size if end is None and complete else None
        if not complete or whole is None or part.size < whole:
            part.sync()
            return _so_far(part.size)
        blobs.check_announced(row.bucket.project, 0)
        return Response(object_document(uploads.complete(row, part, timezone.now()), request))

    def delete(self, request: Request, bucket: str) -> HttpResponseBase:
        uploads.cancel(self._upload(request, bucket))
        return HttpResponse(status=499)

    def _upload(self, request: Request, bucket: str) -> Upload:
        """The upload with this key. Whoever sends a token besides must be the person who began it."""
        row = uploads.find(request.query_params.get("upload_id", ""))
        if row is None or row.bucket.name != bucket:
            raise Http404
        if request.user is not None and request.user != row.created_by:
            raise Http404
        if not row.created_by.is_active:
            raise NotAuthenticated
        access.require(request.user or row.created_by, "store", row.bucket.project)
        return row


def _so_far(size: int) -> HttpResponse:
    headers = {**PERMANENT, **({"Range": f"bytes=0-{size - 1}"} if size else {})}
    return HttpResponse(status=308, headers=headers)


def _content_range(request: Request) -> tuple[int | None, int | None, int | None]:
    """First byte, byte after the last, and size of the whole, each None where the header does not say it. A request
    without the header sends all bytes."""
    header = request.headers.get("Content-Range", "")
    if not header:
        return 0, None, None
    found = RANGE.fullmatch(header.strip())
    if found is None:
        raise BadRequest(
            "Content-Range", "Content-Range must be bytes FIRST-LAST/SIZE, with * for what is not known."
        )
    start, last, total = (None if each is None else int(each) for each in found.groups())
    if start is not None and last is not None and (last < start or (total is not None and last >= total)):
        raise BadRequest("Content-Range", "Content-Range ends before it begins, or after the end.")
    return start, None if last is None else last + 1, total


def announced_size(value: str | None) -> int | None:
    if value is None:
        return None
    if not value.isascii() or not value.isdecimal() or len(value) > 15:
        raise BadRequest("Content-Length", "The size must be a whole number of bytes.")
    return int(value)
