"""Files of a replica: `GET /api/v1/jobs/N/replicas/NAME/files[?path=]` lists a directory, `…/files/content?path=` sends
the bytes of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NotRequired, TypedDict, TypeVar

from django.http import HttpResponseBase
from django.shortcuts import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.description import Bytes, Query, Time, described
from console.api.errors import BadRequest
from console.api.times import format_time
from console.api.views import TrainyardView
from console.auth import access
from console.presenters.shells import file_list
from jobs.models import Job, Replica
from jobs.outputs import work_directories
from jobs.services import Unavailable

T = TypeVar("T")


class FileOfReplica(TypedDict):
    name: str
    kind: str
    size: Bytes
    updateTime: NotRequired[Time]


class FilesOfReplica(TypedDict):
    """`more`: how many are not shown."""

    path: str
    files: list[FileOfReplica]
    more: NotRequired[int]


PATH = Query("path", "Below the work directory of the replica.")


class FilesView(TrainyardView):
    @described(
        "List the work directory of a replica on its host", FilesOfReplica, needs="shell", query=(PATH,)
    )
    def get(self, request: Request, job_id: str, replica: str) -> Response:
        job, row, path, share = _asked(request, job_id, replica)
        listing = _fetched(lambda: work_directories.list_directory(job, row, path, share))
        entries = [
            {
                "name": entry.name,
                "kind": entry.kind,
                "size": str(entry.size),
                **({"updateTime": format_time(entry.changed_at)} if entry.changed_at else {}),
            }
            for entry in listing.entries
        ]
        return Response({"path": path, "files": entries, **({"more": listing.more} if listing.more else {})})


class ContentView(TrainyardView):
    @described(
        "Download a file from the host of a replica",
        needs="shell",
        query=(PATH,),
        files=("application/octet-stream",),
    )
    def get(self, request: Request, job_id: str, replica: str) -> HttpResponseBase:
        job, row, path, share = _asked(request, job_id, replica)
        found = _fetched(lambda: work_directories.open_file(job, row, path, share))
        return file_list.download(found, path, found.size)


def _asked(request: Request, job_id: str, replica: str) -> tuple[Job, Replica, str, str]:
    job = access.get_or_404(request.user, "shell", Job.objects.select_related("project"), pk=int(job_id))
    row = get_object_or_404(Replica.objects.filter(job=job), name=replica)
    return job, row, request.query_params.get("path", "").strip("/"), str(request.user.pk)


def _fetched(fetch: Callable[[], T]) -> T:
    try:
        return fetch()
    except work_directories.Busy as busy:
        raise Unavailable("Several files are being fetched at the moment. Try again in a moment.") from busy
    except work_directories.PROBLEMS as refused:
        raise BadRequest("path", str(refused)) from refused
