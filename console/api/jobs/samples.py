"""The utilization of a job's runs: `GET /api/v1/jobs/<id>/samples[?replica=&run=&after=<time>]`, page by page.

The first page has the newest samples, each further one those before: of a thousand replicas there are 6,000 a minute.
Within a page the oldest sample of a run is first.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, NotRequired, TypedDict

from django.db.models import Q, QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from console.api import resources
from console.api.description import Query, Time, described, paged
from console.api.errors import BadRequest
from console.api.query import page_size
from console.api.times import format_time, parse_time
from console.api.views import TrainyardView
from console.auth import access
from jobs.host_sync.samples import STEP
from jobs.models import Job, RunSample

# A sample has about 200 bytes, and takes some tens of microseconds.
PAGE_SIZE, MAX_PAGE_SIZE = 1_000, 5_000
# From so many runs on, a page looks at the samples of a short time first.
MANY_RUNS = 20
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
TOKEN = re.compile(r"([0-9]{1,17})-([0-9]{1,18})")


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
    """`truncated`: there are more before these, with the `nextPageToken`."""

    runs: list[SamplesOfRun]
    truncated: bool
    nextPageToken: NotRequired[str]


ASKED = (
    Query("replica", "Only those of this replica."),
    Query("run", "Only those of this run."),
    Query("after", "Only those after this time.", Time),
    *paged(PAGE_SIZE, MAX_PAGE_SIZE),
)


class _Run(NamedTuple):
    pk: str
    replica__name: str
    gpu_uuids: list[str]
    cpus: float
    sampled_at: datetime | None


class _Row(NamedTuple):
    """What is told of a sample. A row of the model is many times as dear, and a page has a thousand."""

    pk: int
    run: str
    at: datetime
    step: int
    cpu: float
    memory_mb: int | None
    gpus: list[tuple[float | None, float | None]]
    disk_free_mb: int | None
    gpu_power: list[float | None] | None
    gpu_temperature: list[float | None] | None
    net_rx: int | None
    net_tx: int | None
    io_read: int | None
    io_write: int | None


class SamplesView(TrainyardView):
    @described("List what the runs of a job used, sample by sample", Samples, needs="see", query=ASKED)
    def get(self, request: Request, job_id: str) -> Response:
        """The newest samples first: each page has those before the last one, in the order of their times."""
        job = access.get_or_404(request.user, "see", Job.objects.select_related("project"), pk=int(job_id))
        query = request.query_params.dict()
        asked = resources.requested_runs(job, query).order_by("replica", "pk")
        runs = [_Run(*row) for row in asked.values_list(*_Run._fields)]
        size = page_size(query, PAGE_SIZE, MAX_PAGE_SIZE)
        found = _newest(runs, query, size + 1)
        of: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in reversed(found[:size]):
            of[row.run].append(document(row))
        answer = [
            {
                "run": run.pk,
                "replica": run.replica__name,
                "gpus": run.gpu_uuids,
                "cpus": run.cpus,
                "samples": of[run.pk],
            }
            for run in runs
        ]
        more = {"nextPageToken": _token(found[size - 1])} if len(found) > size else {}
        return Response({"runs": answer, "truncated": len(found) > size, **more})


def _newest(runs: Sequence[_Run], query: dict[str, str], most: int) -> list[_Row]:
    """The newest samples of these runs, from the place of the page's token on.

    The database would sort all samples of a thousand runs for it. So those of a short time are looked at first: runs
    that go on have one every STEP seconds. Where these are too few, all of them are.
    """
    rows = _rows(runs, query)
    until = max((run.sampled_at for run in runs if run.sampled_at), default=None)
    if query.get("pageToken"):
        until = _place(query["pageToken"])[0]
    if until is not None and len(runs) >= MANY_RUNS:
        # Twice the time that so many take, and some more for what came late.
        lately = timedelta(seconds=STEP * (2 * most / len(runs) + 3))
        found = list(rows.filter(at__gte=until - lately)[:most])
        if len(found) == most:
            return [_Row(*row) for row in found]
    return [_Row(*row) for row in rows[:most]]


def _rows(runs: Sequence[_Run], query: dict[str, str]) -> QuerySet[RunSample, tuple[Any, ...]]:
    # By their ids: with a subquery PostgreSQL reads the samples of all jobs.
    rows = RunSample.objects.filter(run__in=[run.pk for run in runs])
    rows = rows.order_by("-at", "-pk")
    if query.get("after"):
        rows = rows.filter(at__gt=_time(query["after"]))
    if token := query.get("pageToken"):
        at, pk = _place(token)
        # Very many samples have the same time: a batch is stored with one.
        rows = rows.filter(Q(at__lt=at) | Q(pk__lt=pk), at__lte=at)
    return rows.values_list(*_Row._fields)


def _token(row: _Row) -> str:
    return f"{(row.at - EPOCH) // MICROSECOND}-{row.pk}"


def _place(token: str) -> tuple[datetime, int]:
    found = TOKEN.fullmatch(token)
    if found is None:
        raise BadRequest("pageToken", "pageToken must be a nextPageToken of an earlier answer.")
    return EPOCH + int(found[1]) * MICROSECOND, int(found[2])


def document(row: _Row) -> dict[str, Any]:
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


def _gpu(row: _Row, index: int) -> dict[str, Any]:
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
