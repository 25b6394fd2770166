"""What a host keeps for the runs to come, and the removal of what no job needs."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from django.db import transaction
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from agents.infra.refusals import Refused
from agents.models import Host
from console.api import errors
from console.api.description import Nothing, Time, described
from console.api.hosts.hosts import host_of
from console.api.request_body import RequestBody
from console.api.times import format_time
from console.api.views import TrainyardView, person
from console.presenters.hosts.kept_files import KeptLine, kept_files
from jobs.maintenance import kept


class KeptOfHost(TypedDict):
    """`kind`: blobs (shipped files), trees (code), environments, images (Apptainer's), podman, docker (loaded from an
    archive, whose SHA-256 is `key`). `name` and `projects`: of projects that you may see; `otherProjects`: how many
    more, for who manages the host. `inUse`: why it cannot be removed now; empty if it can. `leaving`: the host was
    asked to remove it."""

    kind: str
    key: str
    name: str
    sizeBytes: int | None
    sinceTime: NotRequired[Time]
    useTime: NotRequired[Time]
    projects: list[str]
    otherProjects: int
    inUse: str
    leaving: bool


class KeptDocument(TypedDict):
    """As the host told at `reportTime`, if it has. `leftOut`: how many more there are, which were used longer ago.
    `ofOthers`: how many more there are that no project of yours has brought; who manages the host sees them."""

    reportTime: NotRequired[Time]
    kept: list[KeptOfHost]
    leftOut: int
    ofOthers: int


class KeptView(TrainyardView):
    """`GET /api/v1/hosts/<id or name>/kept`."""

    @described("List what a host keeps for the runs to come", KeptDocument, needs="see")
    def get(self, request: Request, host: str) -> Response:
        return Response(document(host_of(request, "see", host), request))


class DiscardView(TrainyardView):
    """`POST /api/v1/hosts/<id or name>/kept/<kind>/<key>:discard`."""

    @described("Remove something from a host that no job needs", KeptDocument, needs="manage", body=Nothing)
    def post(self, request: Request, host: str, kind: str, digest: str) -> Response:
        RequestBody(request)
        row = host_of(request, "manage", host)
        try:
            with transaction.atomic():
                kept.discard(row, kind, digest, person(request).username, timezone.now())
        except Refused as refused:
            return errors.error_response(400, refused.message)
        return Response(document(row, request))


def document(host: Host, request: Request) -> KeptDocument:
    found = kept_files(host, person(request))
    if found is None:
        return {"kept": [], "leftOut": 0, "ofOthers": 0}
    lines = [_of_line(line) for line in found.lines]
    return {
        "reportTime": format_time(found.at),
        "kept": lines,
        "leftOut": found.left_out,
        "ofOthers": found.of_others,
    }


def _of_line(line: KeptLine) -> KeptOfHost:
    told: KeptOfHost = {
        "kind": line.kind,
        "key": line.key,
        "name": line.name,
        "sizeBytes": line.size,
        "projects": list(line.projects),
        "otherProjects": line.others,
        "inUse": line.why,
        "leaving": line.leaving,
    }
    if line.since is not None:
        told["sinceTime"] = format_time(line.since)
    if line.used is not None:
        told["useTime"] = format_time(line.used)
    return told
