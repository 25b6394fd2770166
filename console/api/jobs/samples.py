"""The utilization of a job's runs: `GET /api/v1/jobs/<id>/samples[?replica=&run=&after=<time>]`, oldest first.

If there are more than MAX_SAMPLES samples, the answer has the newest ones, and `truncated` is true.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict

from rest_framework.request import Request
from rest_framework.response import Response

from console.api import resources
from console.api.description import Query, Time, described
from console.api.errors import BadRequest
from console.api.times import format_time, parse_time
from console.api.views import TrainyardView
from console.auth import access
from jobs.models import Job, Run, RunSample

MAX_SAMPLES = 20_000


class GpuSample(TypedDict):
    utilization: float | None
    memoryMb: float | None
    powerW: float | None
    temperatureC: float | None


class HostSample(TypedDict):
    """In bytes a second."""

    networkReceive: float | None
    networkSend: float | None
    diskRead: float | None
    diskWrite: float | None


class Sample(TypedDict):
    """`seconds`: the time that it stands for. `cpu`: in CPUs. `gpus`: in the order of the GPUs of the run."""

    time: Time
    seconds: float
    cpu: float
    memoryMb: float | None
    gpus: list[GpuSample]
    diskFreeMb: float | None
    host: HostSample


class SamplesOfRun(TypedDict):
    run: str
    replica: str
    gpus: list[str]
    cpus: float | None
    samples: list[Sample]


class Samples(TypedDict):
    """`truncated`: there are more, and these are the newest."""

    runs: list[SamplesOfRun]
    truncated: bool


ASKED = (
    Query("replica", "Only those of this replica."),
    Query("run", "Only those of this run."),
    Query("after", "Only those after this time.", Time),
)


class SamplesView(TrainyardView):
    @described("List what the runs of a job used, sample by sample", Samples, needs="see", query=ASKED)
    def get(self, request: Request, job_id: str) -> Response:
        job = access.get_or_404(request.user, "see", Job.objects.select_related("project"), pk=int(job_id))
        query = request.query_params
        runs = Run.objects.filter(job=job).select_related("replica").defer("order").order_by("replica", "pk")
        if replica := resources.requested_replica(job, query.get("replica", "")):
            runs = runs.filter(replica__name=replica)
        if run := query.get("run"):
            runs = runs.filter(pk=run[:80])
            if not runs.exists():
                raise BadRequest(
                    "run", "run must be the id of a run of this job, and of the replica if one is named."
                )
        rows = RunSample.objects.filter(run__in=runs).order_by("-at")
        if query.get("after"):
            rows = rows.filter(at__gt=_time(query["after"]))
        found = list(rows[: MAX_SAMPLES + 1])
        of: dict[str, list[dict[str, Any]]] = {run.pk: [] for run in runs}
        for row in reversed(found[:MAX_SAMPLES]):
            of[row.run_id].append(document(row))
        answer = [
            {
                "run": run.pk,
                "replica": run.replica.name,
                "gpus": run.gpu_uuids,
                "cpus": run.cpus,
                "samples": of[run.pk],
            }
            for run in runs
        ]
        return Response({"runs": answer, "truncated": len(found) > MAX_SAMPLES})


def document(row: RunSample) -> dict[str, Any]:
    return {
        "time": format_time(row.at),
        "seconds": row.step,
        "cpu": round(row.cpu, 3),
        "memoryMb": row.memory_mb,
        "gpus": [_gpu(row, index) for index in range(len(row.gpus))],
        "diskFreeMb": row.disk_free_mb,
        "host": {
            "networkReceive": row.net_rx,
            "networkSend": row.net_tx,
            "diskRead": row.io_read,
            "diskWrite": row.io_write,
        },
    }


def _gpu(row: RunSample, index: int) -> dict[str, Any]:
    (percent, mb), power, heat = row.gpus[index], row.gpu_power or [], row.gpu_temperature or []
    return {
        "utilization": percent,
        "memoryMb": mb,
        "powerW": power[index] if index < len(power) else None,
        "temperatureC": heat[index] if index < len(heat) else None,
    }


def _time(value: str) -> datetime:
    found = parse_time(value.replace(" ", "+"))  # a plus sign that was not escaped
    if found is None:
        raise BadRequest("after", "after must be a time such as 2026-11-21T20:00:00Z.")
    return found
