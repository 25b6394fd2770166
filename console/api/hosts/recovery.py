"""Recovery mode: show the differences, begin, confirm."""

from __future__ import annotations

from typing import TypedDict

from django.db import transaction
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from agents.models import Host
from console.api.description import Nothing, described
from console.api.errors import BadRequest
from console.api.request_body import RequestBody
from console.api.times import format_time
from console.api.views import TrainyardView, person
from console.auth import access
from jobs.host_sync import recovery_mode


class StrayRun(TypedDict):
    """A run that its host has and no row knows."""

    run: str
    host: str
    phase: str


class DoubtedRun(StrayRun):
    proof: str


class MissingRun(TypedDict):
    """A run that a row knows and its host does not have."""

    run: str
    host: str


class Recovery(TypedDict):
    """`observing`: recovery mode is on, since when and why. `unheard`: hosts that have not answered yet."""

    observing: bool
    why: str
    since: str
    strays: list[StrayRun]
    doubted: list[DoubtedRun]
    missing: list[MissingRun]
    unheard: list[str]


class BeginBody(TypedDict):
    why: str


class ConfirmBody(TypedDict, total=False):
    """The runs that are to be stopped."""

    stop: list[str]


class RecoveryView(TrainyardView):
    """`GET /api/v1/recovery`, and `POST /api/v1/recovery:confirm` with `{"stop": [run, ...]}`."""

    @described("Compare what hosts run with what the database knows", Recovery, needs="manage")
    def get(self, request: Request) -> Response:
        _only_managers(request)
        found = recovery_mode.differences()
        return Response(
            {
                "observing": found.recovery is not None,
                "why": found.recovery.why if found.recovery else "",
                "since": format_time(found.recovery.since) if found.recovery else "",
                "strays": [
                    {"run": each.run, "host": each.host.name, "phase": each.phase} for each in found.strays
                ],
                "doubted": [
                    {"run": each.run, "host": each.host.name, "phase": each.phase, "proof": each.proof}
                    for each in found.unsealed
                ],
                "missing": [{"run": each.pk, "host": each.host.name} for each in found.missing],
                "unheard": [each.name for each in found.unheard],
            }
        )


class BeginView(TrainyardView):
    """`POST /api/v1/recovery:begin` with `{"why": "…"}`."""

    @described(
        "Begin recovery mode: nothing is started and nothing stopped", Nothing, needs="manage", body=BeginBody
    )
    def post(self, request: Request) -> Response:
        _only_managers(request)
        why = RequestBody(request, BeginBody).text("why")
        with transaction.atomic():
            recovery_mode.begin(why, person(request).username, timezone.now())
        return Response({})


class ConfirmView(TrainyardView):
    @described("End recovery mode", Nothing, needs="manage", body=ConfirmBody)
    def post(self, request: Request) -> Response:
        _only_managers(request)
        body = RequestBody(request, ConfirmBody)
        stop = body.get("stop", [])
        if not isinstance(stop, list) or not all(isinstance(run, str) for run in stop):
            raise BadRequest("stop", "stop must be a list of runs.")
        with transaction.atomic():
            recovery_mode.confirm(stop, person(request).username, timezone.now())
        return Response({})


def _only_managers(request: Request) -> None:
    access.require(request.user, "manage", Host)
