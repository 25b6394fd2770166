"""A job with everything that Vertex's resource has no field for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict
from uuid import uuid4

from django.db import transaction
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console.api import resources
from console.api.description import Id, Time, described, form, one_of
from console.api.jobs.expected_start import ExpectedStart as Expected
from console.api.jobs.expected_start import expected_document
from console.api.request_body import RequestBody
from console.api.times import format_time
from console.api.views import TrainyardView, absolute_url, person
from console.auth import access
from console.presenters.queue.expected_start import expected_start
from jobs import services
from jobs.logs import last_printed
from jobs.models import ExpectedStart, Job, Run
from jobs.preparations.brought import found_document
from jobs.projects import log_storage
from jobs.rules.lifecycle.states import JobState
from jobs.rules.spec.image_aliases import images_used_document
from jobs.scheduling import output_directories

MAX_REQUEST = 100
Document = dict[str, Any]


class RunDocument(TypedDict):
    """One start of a replica. `memoryLimitEnforced`: the host ends a run that uses more."""

    id: str
    attempt: int
    number: int
    host: str
    phase: str
    gpus: list[str]
    createTime: NotRequired[Time]
    startTime: NotRequired[Time]
    endTime: NotRequired[Time]
    closeTime: NotRequired[Time]
    exitCode: int | None
    exitSignal: int | None
    message: str
    outOfMemory: bool | None
    outOfMemorySure: Annotated[str, one_of(("", "certain", "likely", "unknown"))]
    memoryLimitMb: int | None
    memoryLimitEnforced: bool | None
    log: str
    logSize: int
    logStored: int
    logComplete: bool
    logDigest: str


class ReplicaDocument(TypedDict):
    """`log`: the address of the log of its newest run."""

    name: str
    pool: int
    index: int
    state: str
    restarts: int
    log: str
    lastPrintTime: NotRequired[Time]
    runs: list[RunDocument]


class Advice(TypedDict):
    kind: str
    text: str


class WithoutEffect(TypedDict):
    field: str
    value: Any


class BroughtDocument(TypedDict):
    """Digests, hashes and commits that the names in the document were found to be."""

    image: NotRequired[str]
    code: NotRequired[str]
    packages: NotRequired[list[str]]


class JobDocument(TypedDict):
    """`reason`: why it waits. `flags`: what is odd now. `advice`: what may not do what its owner wants.
    `withoutEffect`: fields that Trainyard does not act on. `customJob`: as Vertex AI has it (docs/vertex.md)."""

    id: Id
    project: str
    owner: str
    version: int
    attempt: int
    retries: int
    reason: str
    imagesUsed: NotRequired[dict[str, str]]
    engineUsed: NotRequired[str]
    brought: NotRequired[dict[str, BroughtDocument]]
    earliestStartTime: NotRequired[Time]
    expectedStart: NotRequired[Expected]
    priority: int
    spot: bool
    flags: list[dict[str, Any]]
    advice: list[Advice]
    withoutEffect: list[WithoutEffect]
    logStorage: NotRequired[str]
    customJob: dict[str, Any]
    replicas: list[ReplicaDocument]


class RerunBody(TypedDict, total=False):
    """`requestId`: sent twice, the same copy is answered."""

    requestId: Annotated[str, form(maxLength=MAX_REQUEST)]


class _Run(NamedTuple):
    """What is told of a run. A row of the model is many times as dear, and there may be a thousand."""

    pk: str
    replica: int
    attempt: int
    number: int
    host__name: str
    phase: str
    gpu_uuids: list[str]
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    closed_at: datetime | None
    exit_code: int | None
    exit_signal: int | None
    message: str
    oom: bool | None
    oom_sure: str
    memory_mb: int
    memory_enforced: bool | None
    log_size: int
    log_stored: int
    log_complete_at: datetime | None
    log_digest_here: str


class JobView(TrainyardView):
    """`GET /api/v1/jobs/<id>`."""

    @described("Get a job with its replicas and runs", JobDocument, needs="see")
    def get(self, request: Request, job_id: str) -> Response:
        job = access.get_or_404(request.user, "see", Job.objects.select_related("project"), pk=int(job_id))
        uris = resources.web_access_uris([job], lambda path: absolute_url(request, path))
        return Response(document(job, uris.get(job.pk, {})))


class RerunView(TrainyardView):
    """`POST /api/v1/jobs/<id>:rerun`: submit the same job once more. `requestId`: sent twice, the same copy is
    answered."""

    @described("Submit the same job once more", JobDocument, needs="submit", body=RerunBody)
    def post(self, request: Request, job_id: str) -> Response:
        user = person(request)
        body = RequestBody(request, RerunBody)
        wanted = body.text("requestId", "", MAX_REQUEST) or f"rerun-{uuid4()}"
        job = access.get_or_404(user, "see", Job.objects.select_related("project"), pk=int(job_id))
        access.project_or_404(user, "submit", job.project.name)
        may_prioritize = access.can(user, "prioritize", job.project)
        with transaction.atomic():
            again = services.rerun(job, user, wanted, timezone.now(), may_prioritize)
        return Response(document(again, {}))


def document(job: Job, web_access: dict[str, str]) -> Document:
    return {
        "id": str(job.pk),
        "project": job.project.name,
        "owner": job.owner_name,
        "version": job.version,
        "attempt": job.attempt,
        "retries": job.job_retries,
        "reason": job.reason,
        **images_used_document(job.resolved),
        **found_document(job),
        **({"earliestStartTime": format_time(job.earliest_start_at)} if job.earliest_start_at else {}),
        **_expected(job),
        "priority": job.priority,
        "spot": job.spot,
        "flags": job.flags,
        "advice": [{"kind": one.kind, "text": one.text} for one in output_directories.advice_of(job)],
        "withoutEffect": [{"field": name, "value": value} for name, value in output_directories.kept_by(job)],
        **({"logStorage": warning} if (warning := log_storage.warning(job.project_id)) else {}),
        "customJob": resources.custom_job(job, web_access),
        "replicas": list(_replicas(job)),
    }


def _replicas(job: Job) -> Iterator[Document]:
    runs: defaultdict[int, list[_Run]] = defaultdict(list)
    shown = Run.objects.filter(job=job, held=False).order_by("attempt", "number")
    for row in shown.values_list(*_Run._fields):
        run = _Run(*row)
        runs[run.replica].append(run)
    printed = last_printed.last_printed([of[-1].pk for of in runs.values()], timezone.now())
    rows = job.replicas.order_by("pool", "index")
    for pk, name, pool, index, state, restarts in rows.values_list(
        "pk", "name", "pool", "index", "state", "restarts"
    ):
        log = f"/api/v1/jobs/{job.pk}/replicas/{name}/log"
        yield {
            "name": name,
            "pool": pool,
            "index": index,
            "state": state,
            "restarts": restarts,
            "log": log,
            **_printed(runs[pk], printed),
            "runs": [_run(log, run) for run in runs[pk]],
        }


def _expected(job: Job) -> Document:
    if job.state != JobState.QUEUED:
        return {}
    return expected_document(expected_start(job, ExpectedStart.objects.filter(job=job).first()))


def _printed(runs: list[_Run], printed: Mapping[str, datetime]) -> Document:
    """When the newest run last printed. When all replicas hang, look first at the one that has been quiet longest."""
    at = printed.get(runs[-1].pk) if runs else None
    return {"lastPrintTime": format_time(at)} if at else {}


def _run(log: str, run: _Run) -> Document:
    times = {
        "createTime": run.created_at,
        "startTime": run.started_at,
        "endTime": run.ended_at,
        "closeTime": run.closed_at,
    }
    return {
        "id": run.pk,
        "attempt": run.attempt,
        "number": run.number,
        "host": run.host__name,
        "phase": run.phase,
        "gpus": run.gpu_uuids,
        **{name: format_time(when) for name, when in times.items() if when},
        "exitCode": run.exit_code,
        "exitSignal": run.exit_signal,
        "message": run.message,
        "outOfMemory": run.oom,
        "outOfMemorySure": run.oom_sure,
        "memoryLimitMb": run.memory_mb or None,
        "memoryLimitEnforced": run.memory_enforced,
        "log": f"{log}?run={run.pk}",
        "logSize": max(run.log_size, run.log_stored),
        "logStored": run.log_stored,
        "logComplete": run.log_complete_at is not None,
        "logDigest": run.log_digest_here,
    }
