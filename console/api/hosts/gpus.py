"""A host's GPUs: which are kept out of use and for whom, and the actions of an admin on one GPU."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from agents.infra.refusals import Refused
from agents.models import Gpu, Host
from console.api import errors
from console.api.description import Call, Time, described, described_acts
from console.api.hosts.hosts import host_of
from console.api.times import format_time
from console.api.views import TrainyardView, person
from console.presenters.hosts.job_ids import without_foreign_jobs
from jobs.maintenance import gpus
from jobs.models import GpuClaim


class HostGpu(TypedDict):
    """`stateText` says why it is kept out of use, `holders` which other processes use it."""

    uuid: str
    index: int
    model: str
    memoryMb: int
    acceleratorType: str
    present: bool
    held: bool
    state: str
    stateText: str
    stateSince: NotRequired[Time]
    holders: Any


class HostGpus(TypedDict):
    gpus: list[HostGpu]


class GpusView(TrainyardView):
    """`GET /api/v1/hosts/<id or name>/gpus`."""

    @described("List the GPUs of a host", HostGpus, needs="see")
    def get(self, request: Request, host: str) -> Response:
        row = host_of(request, "see", host)
        held = _held(row)
        return Response({"gpus": [document(gpu, gpu.pk in held, person(request)) for gpu in row.gpus.all()]})


class GpuActView(TrainyardView):
    """`POST /api/v1/hosts/<id or name>/gpus/<uuid>:recheck|:evict|:use`."""

    @described_acts(
        HostGpu,
        {
            "recheck": Call("Look again whether a GPU is in order", needs="manage"),
            "evict": Call("End the processes that hold a GPU and belong to no job", needs="manage"),
            "use": Call("Use a GPU again that was kept out of use", needs="manage"),
        },
    )
    def post(self, request: Request, host: str, uuid: str, what: str) -> Response:
        row = host_of(request, "manage", host)
        gpu = row.gpus.filter(uuid=uuid).first()
        if gpu is None:
            return errors.error_response(404, f"Host {row.name} has no GPU {uuid}.")
        try:
            with transaction.atomic():
                gpus.act(gpu, what, person(request).username, timezone.now())
        except Refused as refused:
            return errors.error_response(400, refused.message)
        gpu.refresh_from_db()
        return Response(document(gpu, gpu.pk in _held(row), person(request)))


def _held(host: Host) -> set[int]:
    return set(GpuClaim.objects.filter(released_at=None, gpu__host=host).values_list("gpu_id", flat=True))


def document(gpu: Gpu, held: bool, user: User) -> dict[str, Any]:
    return {
        "uuid": gpu.uuid,
        "index": gpu.index,
        "model": gpu.model,
        "memoryMb": gpu.memory_mb,
        "acceleratorType": gpu.accelerator_type,
        "present": gpu.present,
        "held": held,
        "state": gpu.state,
        "stateText": without_foreign_jobs(user, gpu.state_text),
        **({"stateSince": format_time(gpu.state_since)} if gpu.state_since else {}),
        "holders": gpu.holders,
    }
