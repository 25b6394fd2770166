"""Hosts for scripts: how they are, and what an admin does with them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from agents.models import Host
from console.api import resources
from console.api.errors import BadRequest
from console.api.views import TrainyardView, person
from console.auth import access
from jobs.host_sync import strays
from jobs.lifecycle.host_maintenance import maintenance_of
from jobs.maintenance import cordon_and_drain
from jobs.models import Run

Document = dict[str, Any]


class HostsView(TrainyardView):
    """`GET /api/v1/hosts`."""

    def get(self, request: Request) -> Response:
        hosts = Host.objects.select_related("location", "maintenance").prefetch_related("gpus")
        rows = access.visible(request.user, hosts)
        return Response({"hosts": [document(row) for row in rows]})


class HostView(TrainyardView):
    """`GET /api/v1/hosts/<id or name>`."""

    def get(self, request: Request, host: str) -> Response:
        return Response(document(host_of(request, "see", host)))


class ActView(TrainyardView):
    """`POST /api/v1/hosts/<id or name>:cordon` and the like."""

    def post(self, request: Request, host: str, verb: str) -> Response:
        row = host_of(request, "manage", host)
        body = request.data if isinstance(request.data, dict) else None
        if body is None:
            raise BadRequest("", "The body must be a JSON object, or empty.")
        with transaction.atomic():
            ACTS[verb](row, Body(body), person(request).username, timezone.now())
        return Response(document(Host.every.select_related("location", "maintenance").get(pk=row.pk)))


class Body:
    """What was sent, field by field; what is left over is refused."""

    def __init__(self, fields: Document) -> None:
        self._left = dict(fields)

    def text(self, name: str, most: int = cordon_and_drain.MAX_MESSAGE) -> str:
        value = self._left.pop(name, "")
        if not isinstance(value, str) or len(value) > most or "\0" in value:
            raise BadRequest(name, f"{name} must be a text of at most {most} characters.")
        return value

    def switch(self, name: str) -> bool:
        value = self._left.pop(name, False)
        if not isinstance(value, bool):
            raise BadRequest(name, f"{name} must be true or false.")
        return value

    def moment(self, name: str) -> datetime | None:
        value = self._left.pop(name, None)
        if value is None:
            return None
        moment = resources.moment(value)
        if moment is None:
            raise BadRequest(name, f"{name} must be a time such as 2026-11-21T18:00:00Z.")
        return moment

    def close(self) -> None:
        if self._left:
            name = sorted(map(str, self._left))[0][:60]
            raise BadRequest(name, f"{name} is not a field of this.")


def cordon(host: Host, body: Body, actor: str, now: datetime) -> None:
    message = body.text("message")
    body.close()
    cordon_and_drain.cordon(host, message, actor, now)


def uncordon(host: Host, body: Body, actor: str, now: datetime) -> None:
    body.close()
    cordon_and_drain.uncordon(host, actor, now)


def drain(host: Host, body: Body, actor: str, now: datetime) -> None:
    message, until, force = body.text("message"), body.moment("deadline"), body.switch("force")
    body.close()
    cordon_and_drain.drain(host, message, until, force, actor, now)


def contain(host: Host, body: Body, actor: str, now: datetime) -> None:
    """`pidNamespaces`: whether new runs get PID namespaces of their own."""
    switch = body.switch("pidNamespaces")
    body.close()
    cordon_and_drain.set_pid_namespaces(host, switch, actor, now)


def declare_gone(host: Host, body: Body, actor: str, now: datetime) -> None:
    """`name` is the host's, once more: this cannot be taken back."""
    name = body.text("name")
    body.close()
    cordon_and_drain.declare_gone(host, name, actor, now)


def stop_run(host: Host, body: Body, actor: str, now: datetime) -> None:
    """`run`: one that the host has and no job explains."""
    run = body.text("run")
    body.close()
    strays.stop(host, run, actor, now)


def dismiss_run(host: Host, body: Body, actor: str, now: datetime) -> None:
    run = body.text("run")
    body.close()
    strays.dismiss(host, run, actor, now)


ACTS: dict[str, Callable[[Host, Body, str, datetime], None]] = {
    "cordon": cordon,
    "uncordon": uncordon,
    "drain": drain,
    "contain": contain,
    "declareGone": declare_gone,
    "stopRun": stop_run,
    "dismissRun": dismiss_run,
}


def document(host: Host) -> Document:
    gpus = [gpu for gpu in host.gpus.all() if gpu.present]
    maintenance = maintenance_of(host)
    times = {
        "cordonTime": maintenance.cordoned_at,
        "goneTime": maintenance.gone_at,
        "drainTime": maintenance.drain_at,
        "drainDeadline": maintenance.drain_until,
        "drainedTime": maintenance.drained_at,
        "statusTime": host.status_since,
        "seenTime": host.seen_at,
    }
    return {
        "id": host.pk,
        "name": host.name,
        "location": host.location.name,
        "address": host.address,
        "status": host.status,
        "error": host.last_error,
        "cordoned": maintenance.cordoned,
        "cordonedBy": maintenance.cordoned_by,
        "draining": maintenance.drain_at is not None,
        "force": maintenance.drain_force,
        "message": maintenance.cordon_message,
        "pidNamespaces": host.pid_namespaces,
        **{name: resources.stamp(when) for name, when in times.items() if when},
        "cpus": host.cpus,
        "memoryMb": host.memory_mb,
        "gpus": [
            {
                "index": gpu.index,
                "uuid": gpu.uuid,
                "model": gpu.model,
                "acceleratorType": gpu.accelerator_type,
            }
            for gpu in gpus
        ],
        "runs": Run.objects.filter(host=host, released_at=None).count(),
    }


def host_of(request: Request, verb: access.Verb, named: str) -> Host:
    rows = Host.objects.select_related("location", "maintenance")
    lookup = {"pk": int(named)} if named.isdigit() else {"name": named}
    return access.get_or_404(request.user, verb, rows, **lookup)
