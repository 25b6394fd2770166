"""Recovery mode: show the differences, begin, confirm."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from agents.models import Host
from console.api.errors import BadRequest
from console.api.times import format_time
from console.api.views import TrainyardView, person
from console.auth import access
from jobs.host_sync import recovery_mode


class RecoveryView(TrainyardView):
    """`GET /api/v1/recovery`, and `POST /api/v1/recovery:confirm` with `{"stop": [run, ...]}`."""

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

    def post(self, request: Request) -> Response:
        _only_managers(request)
        why = request.data.get("why") if isinstance(request.data, dict) else None
        if not isinstance(why, str):
            raise BadRequest("why", "why must be a text.")
        with transaction.atomic():
            recovery_mode.begin(why, person(request).username, timezone.now())
        return Response({})


class ConfirmView(TrainyardView):
    def post(self, request: Request) -> Response:
        _only_managers(request)
        body = request.data if isinstance(request.data, dict) else {}
        stop = body.get("stop", [])
        if not isinstance(stop, list) or not all(isinstance(run, str) for run in stop):
            raise BadRequest("stop", "stop must be a list of runs.")
        with transaction.atomic():
            recovery_mode.confirm(stop, person(request).username, timezone.now())
        return Response({})


def _only_managers(request: Request) -> None:
    access.require(request.user, "manage", Host)
