"""Machine types: list, define, remove."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from django.http import Http404
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from agents.hosts import adding
from agents.infra import refusals
from agents.models import Location
from console.api.description import Nothing, Query, described, form
from console.api.errors import BadRequest
from console.api.request_body import RequestBody
from console.api.views import TrainyardView, person
from console.auth import access
from console.presenters.new_job import preview
from jobs.models import MachineType
from jobs.projects import locations
from jobs.rules.spec.machine_types import allocatable_mb
from jobs.scheduling import machine_types

NUMBERS = {"cpus": (float, int), "memoryMb": (int,), "acceleratorCount": (int,)}
BOUNDS = {
    "cpus": (machine_types.MIN_CPUS, machine_types.MAX_CPUS),
    "memoryMb": (0, machine_types.MAX_MEMORY_MB),
    "acceleratorCount": (0, machine_types.MAX_GPUS),
}
CALLED = {
    "memory_mb": "memoryMb",
    "accelerator_type": "acceleratorType",
    "accelerator_count": "acceleratorCount",
}
TEXTS = ("acceleratorType", "note")


class OfferedMachineType(TypedDict):
    """`own`: defined here, and not one of Google's. `hosts`: how many could ever take it, `hostsNow` at this moment."""

    name: str
    own: bool
    cpus: float | None
    memoryMb: int | None
    allocatableMemoryMb: int | None
    acceleratorType: str
    acceleratorCount: int
    hosts: int
    hostsNow: int


class OfferedMachineTypes(TypedDict):
    machineTypes: list[OfferedMachineType]


class MachineTypeBody(TypedDict, total=False):
    cpus: Annotated[float, form(minimum=machine_types.MIN_CPUS, maximum=machine_types.MAX_CPUS)]
    memoryMb: Annotated[int, form(minimum=0, maximum=machine_types.MAX_MEMORY_MB)]
    acceleratorType: str
    acceleratorCount: Annotated[int, form(minimum=0, maximum=machine_types.MAX_GPUS)]
    note: str


class MachineTypeDocument(TypedDict):
    """`location`: empty for all."""

    name: str
    location: str
    cpus: float
    memoryMb: int
    allocatableMemoryMb: int
    acceleratorType: str
    acceleratorCount: int
    note: str


HERE = Query("location", "The location that it is for; none: for all.")


class MachineTypesView(TrainyardView):
    """`GET /api/v1/machineTypes?location=`: all machine types that a job may request there."""

    @described(
        "List the machine types that a job may ask for",
        OfferedMachineTypes,
        needs="see",
        query=(Query("location", f"Of this location; {adding.DEFAULT_LOCATION} if nothing is said."),),
    )
    def get(self, request: Request) -> Response:
        access.require(request.user, "see", MachineType)
        named = request.query_params.get("location", adding.DEFAULT_LOCATION)
        location = locations.resolved(named, locations.names())
        access.get_or_404(request.user, "see", Location.objects.all(), name=location)
        offers = preview.machine_offers(location, person(request))
        return Response({"machineTypes": [_offer(offer) for offer in offers]})


class MachineTypeView(TrainyardView):
    """`PUT` defines or changes, `DELETE` removes `/api/v1/machineTypes/<name>?location=`; no location: everywhere."""

    @described(
        "Define a machine type, or change it",
        MachineTypeDocument,
        needs="manage",
        body=MachineTypeBody,
        query=(HERE,),
    )
    def put(self, request: Request, name: str) -> Response:
        _only_managers(request)
        given = _read(request)
        try:
            row = machine_types.define(
                name,
                request.query_params.get("location", ""),
                given.get("cpus", 0),
                given.get("memoryMb", 0),
                given.get("acceleratorType", ""),
                given.get("acceleratorCount", 0),
                given.get("note", ""),
                person(request).username,
                timezone.now(),
            )
        except refusals.Refused as refused:
            field = CALLED.get(refused.field, refused.field)
            raise BadRequest(field, f"{field}: {refused.message}") from refused
        return Response(_own(row))

    @described("Remove a machine type", Nothing, needs="manage", query=(HERE,))
    def delete(self, request: Request, name: str) -> Response:
        _only_managers(request)
        location = request.query_params.get("location", "")
        rows = MachineType.objects.filter(name=name)
        row = (rows.filter(location__name=location) if location else rows.filter(location=None)).first()
        if row is None:
            raise Http404
        machine_types.remove(row, person(request).username, timezone.now())
        return Response({})


def _read(request: Request) -> dict[str, Any]:
    body = RequestBody(request, MachineTypeBody)
    fields: dict[str, Any] = {name: body.text(name) for name in TEXTS if name in body}
    for name in [name for name in NUMBERS if name in body]:
        value = body.get(name)
        if isinstance(value, bool) or not isinstance(value, NUMBERS[name]):
            low, high = BOUNDS[name]
            kind = "number" if float in NUMBERS[name] else "whole number"
            raise BadRequest(name, f"{name} must be a {kind} from {low} to {high}.")
        fields[name] = value
    return fields


def _own(row: MachineType) -> dict[str, Any]:
    return {
        "name": row.name,
        "location": row.location.name if row.location else "",
        "cpus": row.cpus,
        "memoryMb": row.memory_mb,
        "allocatableMemoryMb": allocatable_mb(row.memory_mb),
        "acceleratorType": row.accelerator_type,
        "acceleratorCount": row.accelerator_count,
        "note": row.note,
    }


def _offer(offer: preview.MachineOffer) -> dict[str, Any]:
    return {
        "name": offer.name,
        "own": offer.own,
        "cpus": offer.needs.cpus,
        "memoryMb": offer.memory_mb,
        "allocatableMemoryMb": offer.allocatable_mb,
        "acceleratorType": offer.needs.accelerator_type,
        "acceleratorCount": offer.needs.gpus,
        "hosts": offer.ever,
        "hostsNow": offer.now,
    }


def _only_managers(request: Request) -> None:
    access.require(request.user, "manage", MachineType)
