"""What a job wrote below its output directories, under `/api/v1/jobs/N/outputs`.

`GET …` says how far it is stored, host by host. `GET …/files?path=` lists a directory, `DELETE …/files?path=` deletes a
file or a directory from the storage. `GET …/content?path=` sends a file, or a `Range` of it; of a directory it sends a
ZIP archive of all that is stored below it, made while it is sent.
"""

from __future__ import annotations

import base64
import binascii
import zipfile
from collections.abc import Iterator
from typing import Annotated, NotRequired, TypedDict
from urllib.parse import quote

from django.http import Http404, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console.api import errors
from console.api.description import Bytes, Query, Time, described, one_of, paged
from console.api.errors import BadRequest
from console.api.query import page_size
from console.api.times import format_time
from console.api.views import TrainyardView
from console.auth import access
from console.auth.access import Verb
from console.presenters import byte_range
from console.presenters.archive_sink import ArchiveSink
from jobs.artifacts import objects
from jobs.models import Job, StoredObject
from jobs.outputs import browsing, state
from jobs.projects import audit

MAX_PATH = 1200
MAX_ARCHIVE_FILES = 100_000


class OutputsOfHost(TypedDict):
    """How far the files that the job wrote there are stored. `leftOut`: what is not, and why. `filledBytes`: how much
    of what earlier runs wrote is there again."""

    host: str
    state: str
    files: int
    bytes: Bytes
    storedFiles: int
    storedBytes: Bytes
    problem: NotRequired[str]
    leftOut: NotRequired[dict[str, str]]
    lookTime: NotRequired[Time]
    filledBytes: NotRequired[Bytes]


class Outputs(TypedDict):
    addresses: list[str]
    hosts: list[OutputsOfHost]


class OutputFile(TypedDict):
    """`onHost`: not stored yet."""

    name: str
    kind: Annotated[str, one_of(("directory", "file"))]
    size: NotRequired[Bytes]
    updateTime: NotRequired[Time]
    onHost: NotRequired[str]


class OutputFiles(TypedDict):
    path: str
    files: list[OutputFile]
    nextPageToken: NotRequired[str]


class DeletedFiles(TypedDict):
    deletedFiles: int


PATH = Query("path", "bucket/directory/file, as the list has it.")


class OutputsView(TrainyardView):
    @described("Get how far the files that a job wrote are stored", Outputs, needs="see_log")
    def get(self, request: Request, job_id: str) -> Response:
        job = _job(request, job_id)
        hosts = [
            {
                "host": each.host,
                "state": each.stage.upper(),
                "files": each.files,
                "bytes": str(each.bytes),
                "storedFiles": each.stored_files,
                "storedBytes": str(each.stored_bytes),
                **({"problem": each.problem} if each.problem else {}),
                **({"leftOut": dict(each.left_out)} if each.left_out else {}),
                **({"lookTime": format_time(each.looked_at)} if each.looked_at else {}),
                **({} if each.is_filled else {"filledBytes": str(each.fill_done)}),
            }
            for each in state.of_job(job)
        ]
        return Response({"addresses": [str(each) for each in browsing.addresses(job)], "hosts": hosts})


class OutputFilesView(TrainyardView):
    @described(
        "List a directory that a job wrote",
        OutputFiles,
        needs="see_log",
        query=(PATH, *paged(browsing.PAGE, browsing.PAGE)),
    )
    def get(self, request: Request, job_id: str) -> Response:
        job, path = _job(request, job_id), _path(request)
        query = request.query_params
        limit = page_size(query, browsing.PAGE, browsing.PAGE)
        found = browsing.list_directory(job, path, _position(query.get("pageToken", "")), limit)
        if found is None:
            raise Http404
        files = [
            {
                "name": entry.name,
                "kind": "directory" if entry.is_directory else "file",
                **({} if entry.size is None else {"size": str(entry.size)}),
                **({"updateTime": format_time(entry.changed_at)} if entry.changed_at else {}),
                **({"onHost": entry.host} if entry.host else {}),
            }
            for entry in found.entries
        ]
        return Response({"path": path, "files": files, **_next(found.next_position)})

    @described(
        "Delete a file that a job wrote, or all below a directory",
        DeletedFiles,
        needs="delete",
        query=(PATH,),
    )
    def delete(self, request: Request, job_id: str) -> Response:
        job, path = _job(request, job_id, "delete"), _path(request)
        now = timezone.now()
        number = browsing.delete(job, path, now)
        if not number:
            raise Http404
        audit.record(
            request.user.get_username(),
            "outputs.delete",
            "job",
            str(job.pk),
            None,
            {"path": path, "files": number},
            now,
            job.project,
        )
        return Response({"deletedFiles": number})


class OutputContentView(TrainyardView):
    @described(
        "Download a file that a job wrote; of a directory, a ZIP archive",
        needs="see_log",
        query=(PATH,),
        files=("application/octet-stream", "application/zip"),
        statuses=(200, 206),
    )
    def get(self, request: Request, job_id: str) -> HttpResponseBase:
        job, path = _job(request, job_id), _path(request)
        stored = browsing.find(job, path)
        if stored is not None:
            return _file(request, stored)
        files = list(_bounded(job, path))
        if not files:
            raise Http404
        name = path.rpartition("/")[2] or f"job-{job.pk}"
        return _attachment(StreamingHttpResponse(_zip(files)), "application/zip", f"{name}.zip")

    head = get


def _job(request: Request, job_id: str, verb: Verb = "see_log") -> Job:
    return access.get_or_404(request.user, verb, Job.objects.select_related("project"), pk=int(job_id))


def _path(request: Request) -> str:
    given = request.query_params.get("path", "")
    path = browsing.clean(given) if len(given) <= MAX_PATH else None
    if path is None:
        raise BadRequest("path", "path must be bucket/directory/file, without . and .. in it.")
    return path


def _position(token: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(token.encode())
    except (binascii.Error, ValueError):
        raise BadRequest("pageToken", "pageToken is not one that this list gave.") from None


def _next(position: bytes) -> dict[str, str]:
    return {"nextPageToken": base64.urlsafe_b64encode(position).decode()} if position else {}


def _file(request: Request, stored: StoredObject) -> HttpResponseBase:
    size = stored.blob.size
    chosen = byte_range.chosen(request.headers.get("Range", ""), size)
    if chosen is None:
        answer: HttpResponseBase = errors.error_response(416, f"There are {size} bytes.")
        answer["Content-Range"] = f"bytes */{size}"
        return answer
    first, last = chosen
    if request.method == "HEAD":
        answer = HttpResponse()
    else:
        answer = StreamingHttpResponse(objects.open_object(stored, first, last))
    if (first, last) != (0, size):
        answer.status_code = 206
        answer["Content-Range"] = f"bytes {first}-{last - 1}/{size}"
    answer["Content-Length"] = str(last - first)
    answer["Accept-Ranges"] = "bytes"
    answer["ETag"] = f'"{stored.generation}"'
    return _attachment(answer, "application/octet-stream", stored.name.rpartition("/")[2])


def _attachment(answer: HttpResponseBase, kind: str, name: str) -> HttpResponseBase:
    """A file to be kept and never to be shown: a job's program wrote it."""
    answer["Content-Type"] = kind
    answer["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(name)}"
    answer["Cache-Control"] = "private, no-store"
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


def _bounded(job: Job, path: str) -> Iterator[tuple[str, StoredObject]]:
    for number, found in enumerate(browsing.walk(job, path)):
        if number == MAX_ARCHIVE_FILES:
            raise BadRequest(
                "path", f"There are more than {MAX_ARCHIVE_FILES} files. Choose a directory in it."
            )
        yield found


def _zip(files: list[tuple[str, StoredObject]]) -> Iterator[bytes]:
    """The archive, block by block. Its files are not compressed: nothing is waited for."""
    sink = ArchiveSink()
    with zipfile.ZipFile(sink, "w") as archive:
        for name, stored in files:
            with archive.open(name, "w", force_zip64=True) as file:
                for block in objects.open_object(stored):
                    file.write(block)
                    yield sink.take()
    yield sink.take()
