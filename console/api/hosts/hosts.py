"""Hosts: their state, and the actions of an admin (cordon, drain, declare gone, stray runs)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, NotRequired, TypedDict

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, Prefetch
from django.db.models.functions import Coalesce
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from agents.hosts import data_address
from agents.hosts.moving import Way
from agents.models import Gpu, Host
from console.api.description import Call, Nothing, Query, Time, described, described_acts, form, one_of, paged
from console.api.errors import BadRequest
from console.api.query import page_size
from console.api.request_body import RequestBody
from console.api.times import format_time
from console.api.views import TrainyardView, person, require_confirmed
from console.auth import access
from console.presenters.hosts import host_filters, host_gpus, host_logins
from console.presenters.hosts.job_ids import JobIdFilter, without_foreign_jobs
from jobs.host_sync import strays
from jobs.lifecycle.host_maintenance import maintenance_of
from jobs.maintenance import cordon_and_drain, edit_host, logins
from jobs.models import Run

Document = dict[str, Any]
PAGE_SIZE, MAX_PAGE_SIZE = 100, 1000
# Without what is not told of each: a page has a thousand GPUs.
_GPUS = Prefetch(
    "gpus",
    Gpu.objects.filter(present=True).only("host", "index", "uuid", "model", "accelerator_type", "present"),
)


class GpuOfHost(TypedDict):
    index: int
    uuid: str
    model: str
    acceleratorType: str


class LoginOfHost(TypedDict):
    """A login that serves one project on the machine."""

    id: int
    project: str
    user: str
    status: str


class HostOfList(TypedDict):
    id: int
    name: str
    location: str
    address: str
    port: int
    user: str
    jump: str
    status: str
    error: str
    cordoned: bool
    cordonedBy: str
    draining: bool
    force: bool
    message: str
    pidNamespaces: bool
    dataAddress: str
    dataAddressChosen: bool
    cordonTime: NotRequired[Time]
    goneTime: NotRequired[Time]
    drainTime: NotRequired[Time]
    drainDeadline: NotRequired[Time]
    drainedTime: NotRequired[Time]
    statusTime: NotRequired[Time]
    seenTime: NotRequired[Time]
    cpus: int | None
    memoryMb: int | None
    gpus: list[GpuOfHost]
    runs: int


class HostDocument(HostOfList):
    """`loginTemplate`: the names of the logins of projects, such as train-{project}; empty: one login for all."""

    loginTemplate: str
    logins: list[LoginOfHost]


class HostPage(TypedDict):
    hosts: list[HostOfList]
    nextPageToken: NotRequired[str]


class HostChange(TypedDict, total=False):
    """What is left out stays. `jumpKeys`: fingerprints of keys of new jump hosts."""

    address: Annotated[str, form(maxLength=255)]
    port: Annotated[int, form(minimum=1, maximum=65535)]
    user: Annotated[str, form(maxLength=64)]
    jump: Annotated[str, form(maxLength=1000)]
    location: Annotated[str, form(maxLength=63)]
    jumpKeys: list[str]


class CordonBody(TypedDict, total=False):
    message: str


class DrainBody(TypedDict, total=False):
    """`deadline`: until then jobs may end by themselves. `force`: jobs that cannot be moved are stopped."""

    message: str
    deadline: Time | None
    force: bool


class ContainBody(TypedDict, total=False):
    """Whether new runs get PID namespaces of their own."""

    pidNamespaces: bool


class NetworkBody(TypedDict, total=False):
    """Where replicas of other hosts reach those of this one; empty for the address that the check finds."""

    dataAddress: Annotated[str, form(maxLength=255)]


class LoginsBody(TypedDict, total=False):
    """The names of the logins of projects, such as train-{project}; empty: one login for all."""

    template: Annotated[str, form(maxLength=64)]


class GoneBody(TypedDict):
    """The host's name again, because this cannot be undone."""

    name: str


class RunBody(TypedDict):
    """A run that the host has and that belongs to no job."""

    run: str


LIST = (
    *paged(PAGE_SIZE, MAX_PAGE_SIZE),
    Query("location", "Only the hosts of this location."),
    Query("status", "Only the hosts in this state.", Annotated[str, one_of(host_filters.STATES)]),
    Query("text", "Only hosts whose name, address or models of GPUs have this text."),
)


class HostsView(TrainyardView):
    """`GET /api/v1/hosts[?pageSize=&pageToken=&location=&status=&text=]`: by name, with a `nextPageToken` if there are
    more.
    """

    @described("List hosts by name", HostPage, query=LIST)
    def get(self, request: Request) -> Response:
        query, user = request.query_params, person(request)
        size = page_size(query, PAGE_SIZE, MAX_PAGE_SIZE)
        rows = host_filters.found(user, host_filters.Filters.of(query.dict()))
        after = query.get("pageToken", "")
        if after:
            rows = rows.filter(name__gt=_name_in(after))
        light = rows.select_related("location", "maintenance").defer("checklist").prefetch_related(_GPUS)
        page = list(light[: size + 1])
        more = {"nextPageToken": page[size - 1].name} if len(page) > size else {}
        return Response({"hosts": _documents(page[:size], user), **more})


class HostView(TrainyardView):
    """`GET /api/v1/hosts/<id or name>`; `PATCH` changes address, port, user, jump, location, after a check."""

    @described("Get a host", HostDocument, needs="see")
    def get(self, request: Request, host: str) -> Response:
        return Response(document(host_of(request, "see", host), person(request)))

    @described(
        "Change how a host is reached, after a check of the new way",
        HostDocument,
        needs="manage",
        body=HostChange,
    )
    def patch(self, request: Request, host: str) -> Response:
        """Fields that are left out stay. `jumpKeys`: fingerprints of keys of new jump hosts."""
        row = host_of(request, "manage", host)
        body = RequestBody(request, HostChange)
        seen, keys = edit_host.Place.of(row), _fingerprints(body)
        if keys:
            require_confirmed(request, "accept the key of a jump host")
        edit_host.edit_host(row, _wanted(body, seen), seen, keys, person(request).username, timezone.now())
        after = Host.every.select_related("location", "maintenance").get(pk=row.pk)
        return Response(document(after, person(request)))


CALLS = {
    "cordon": Call("Start no more runs on a host", needs="manage", body=CordonBody),
    "uncordon": Call("Use a host again that was cordoned or drained", needs="manage", body=Nothing),
    "drain": Call("Empty a host: replicas go on elsewhere", needs="manage", body=DrainBody),
    "contain": Call("Give new runs PID namespaces of their own, or not", needs="manage", body=ContainBody),
    "network": Call("Set the address for replicas of other hosts", needs="manage", body=NetworkBody),
    "setLogins": Call("Set the names of the logins of projects", needs="manage", body=LoginsBody),
    "declareGone": Call("Declare a host gone: its runs are given up", needs="manage", body=GoneBody),
    "stopRun": Call("Stop a run that belongs to no job", needs="manage", body=RunBody),
    "dismissRun": Call("Forget a run that belongs to no job", needs="manage", body=RunBody),
}


class ActView(TrainyardView):
    """`POST /api/v1/hosts/<id or name>:cordon` and the like."""

    @described_acts(HostDocument, CALLS)
    def post(self, request: Request, host: str, verb: str) -> Response:
        row = host_of(request, "manage", host)
        with transaction.atomic():
            ACTS[verb](row, request, person(request).username, timezone.now())
        after = Host.every.select_related("location", "maintenance").get(pk=row.pk)
        return Response(document(after, person(request)))


def _wanted(body: RequestBody, seen: edit_host.Place) -> edit_host.Place:
    way, port = seen.way, seen.way.port
    if "port" in body:
        number = body.number("port", "between 1 and 65535")
        if not number.is_integer():
            raise BadRequest("port", "port must be a whole number between 1 and 65535.")
        port = int(number)
    user = body.text("user", way.user, 64)
    reached = Way(body.text("address", way.address, 255), port, user, body.text("jump", way.jump, 1000))
    return edit_host.Place(reached, body.text("location", seen.location, 63))


def _fingerprints(body: RequestBody) -> list[str]:
    keys = body.get("jumpKeys", [])
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise BadRequest("jumpKeys", "jumpKeys must be a list of fingerprints such as SHA256:...")
    return keys


def cordon(host: Host, request: Request, actor: str, now: datetime) -> None:
    message = _message(RequestBody(request, CordonBody))
    cordon_and_drain.cordon(host, message, actor, now)


def uncordon(host: Host, request: Request, actor: str, now: datetime) -> None:
    RequestBody(request)
    cordon_and_drain.uncordon(host, actor, now)


def drain(host: Host, request: Request, actor: str, now: datetime) -> None:
    body = RequestBody(request, DrainBody)
    message, until, force = _message(body), body.time("deadline"), body.boolean("force")
    cordon_and_drain.drain(host, message, until, force, actor, now)


def contain(host: Host, request: Request, actor: str, now: datetime) -> None:
    """`pidNamespaces`: whether new runs get PID namespaces of their own."""
    switch = RequestBody(request, ContainBody).boolean("pidNamespaces")
    cordon_and_drain.set_pid_namespaces(host, switch, actor, now)


def network(host: Host, request: Request, actor: str, now: datetime) -> None:
    """`dataAddress`: where replicas of other hosts reach those of this one; "" for the address that the check finds."""
    address = RequestBody(request, NetworkBody).text("dataAddress", "", 255)
    cordon_and_drain.set_data_address(host, address.strip(), actor, now)


def set_logins(host: Host, request: Request, actor: str, now: datetime) -> None:
    """`template`: the names of the logins of projects, such as train-{project}; empty: one login for all."""
    logins.set_template(host, RequestBody(request, LoginsBody).text("template", "", 64), actor, now)


def declare_gone(host: Host, request: Request, actor: str, now: datetime) -> None:
    """`name` repeats the host's name, because this cannot be undone."""
    name = RequestBody(request, GoneBody).text("name", "", cordon_and_drain.MAX_MESSAGE)
    cordon_and_drain.declare_gone(host, name, actor, now)


def stop_run(host: Host, request: Request, actor: str, now: datetime) -> None:
    """`run`: a run that the host has and that belongs to no job."""
    strays.stop(host, _run(request), actor, now)


def dismiss_run(host: Host, request: Request, actor: str, now: datetime) -> None:
    """`run`: a run that the host has and that belongs to no job."""
    strays.dismiss(host, _run(request), actor, now)


def _message(body: RequestBody) -> str:
    return body.text("message", "", cordon_and_drain.MAX_MESSAGE)


def _run(request: Request) -> str:
    return RequestBody(request, RunBody).text("run", "", cordon_and_drain.MAX_MESSAGE)


ACTS: dict[str, Callable[[Host, Request, str, datetime], None]] = {
    "cordon": cordon,
    "uncordon": uncordon,
    "drain": drain,
    "contain": contain,
    "network": network,
    "setLogins": set_logins,
    "declareGone": declare_gone,
    "stopRun": stop_run,
    "dismissRun": dismiss_run,
}


def _name_in(token: str) -> str:
    """The name of the last host of the page before."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,63}", token):
        raise BadRequest("pageToken", "pageToken must be a nextPageToken of an earlier answer.")
    return token


def _documents(hosts: Sequence[Host], user: User) -> list[Document]:
    """The hosts of one page, without their logins, with a constant number of queries."""
    ids = JobIdFilter(user, (host.last_error for host in hosts))
    here = [host.pk for host in hosts]
    held = Run.objects.filter(host_gpus.on_machines(here), released_at=None).order_by()
    runs = dict(held.values_list(Coalesce("host__machine", "host")).annotate(Count("pk")))
    return [_document(host, ids.clean(host.last_error), runs.get(host.pk, 0)) for host in hosts]


def document(host: Host, user: User) -> Document:
    runs = Run.objects.filter(host_gpus.on_machine(host), released_at=None).count()
    found = [
        {"id": line.id, "project": line.project, "user": line.user, "status": line.status}
        for line in host_logins.lines(host, user)
    ]
    known = _document(host, without_foreign_jobs(user, host.last_error), runs)
    return {**known, "loginTemplate": logins.template_of(host), "logins": found}


def _document(host: Host, error: str, runs: int) -> Document:
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
        "port": host.port,
        "user": host.user,
        "jump": host.jump,
        "status": host.status,
        "error": error,
        "cordoned": maintenance.cordoned,
        "cordonedBy": maintenance.cordoned_by,
        "draining": maintenance.drain_at is not None,
        "force": maintenance.drain_force,
        "message": maintenance.cordon_message,
        "pidNamespaces": host.pid_namespaces,
        "dataAddress": data_address.address_for_data(host),
        "dataAddressChosen": bool(host.data_address),
        **{name: format_time(when) for name, when in times.items() if when},
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
        "runs": runs,
    }


def host_of(request: Request, verb: access.Verb, named: str) -> Host:
    # By number, a login of a machine too; by name, the machine.
    rows = (Host.objects if named.isdigit() else Host.machines).select_related("location", "maintenance")
    lookup = {"pk": int(named)} if named.isdigit() else {"name": named}
    return access.get_or_404(request.user, verb, rows, **lookup)
