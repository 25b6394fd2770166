"""Writes jobs as Vertex AI's CustomJob resources: proto3 JSON, camelCase, without empty fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db.models import F, QuerySet
from django.urls import reverse
from rest_framework.request import Request

from agents.infra.sql import Parameter, SelectStatement
from console.api.errors import BadRequest
from console.api.times import format_time
from jobs.models import Job, RegisteredModel, Run
from jobs.rules.lifecycle.states import TERMINAL, JobState, RunPhase, wire_name

Document = dict[str, Any]
Absolute = Callable[[str], str]
# The running runs of jobs in their present attempts: job, replica, run.
_running = SelectStatement(
    lambda: (
        Run.objects.filter(job__among=Parameter("jobs"), attempt=F("job__attempt"), phase=RunPhase.RUNNING)
        .order_by("number")
        .values_list("job", "replica__name", "pk")
    )
)
# How many names of replicas the error message lists when a query names an unknown replica.
MAX_NAMED = 10


def requested_replica(job: Job, name: str, field: str = "replica") -> str:
    """The name of the replica in a query, checked to be one of the job's. An empty name means no replica."""
    if name and not job.replicas.filter(name=name).exists():
        known = list(job.replicas.order_by("pool", "index").values_list("name", flat=True)[: MAX_NAMED + 1])
        more = ", ..." if len(known) > MAX_NAMED else ""
        raise BadRequest(field, f"{field} must be one of {', '.join(known[:MAX_NAMED])}{more}.")
    return name


def requested_runs(job: Job, query: Mapping[str, str]) -> QuerySet[Run]:
    """The runs of the job that a query names by `replica` and by `run`; all of them if it names none."""
    runs = Run.objects.filter(job=job)
    if replica := requested_replica(job, query.get("replica", "")):
        runs = runs.filter(replica__name=replica)
    if run := query.get("run"):
        runs = runs.filter(pk=run[:80])
        if not runs.exists():
            raise BadRequest(
                "run", "run must be the id of a run of this job, and of the replica if one is named."
            )
    return runs


def job_name(job: Job) -> str:
    return f"projects/{job.project.name}/locations/{job.location_name}/customJobs/{job.pk}"


def model_name(model: RegisteredModel) -> str:
    return f"projects/{model.project.name}/locations/{model.location_name}/models/{model.model_id}"


def read_mask(request: Request) -> str:
    return request.query_params.get("readMask") or request.query_params.get("read_mask") or ""


def custom_job(job: Job, web_access: Mapping[str, str]) -> Document:
    document: Document = {
        "name": job_name(job),
        "displayName": job.display_name,
        "jobSpec": job.spec,
        "state": wire_name(JobState(job.state)),
        "createTime": format_time(job.created_at),
        "updateTime": format_time(job.updated_at),
    }
    if job.labels:
        document["labels"] = job.labels
    if job.started_at:
        document["startTime"] = format_time(job.started_at)
    if JobState(job.state) in TERMINAL:
        if job.ended_at:
            document["endTime"] = format_time(job.ended_at)
        if job.error_code is not None:
            document["error"] = {"code": job.error_code, "message": job.error_message}
    if web_access:
        document["webAccessUris"] = dict(web_access)
    return document


def web_access_uris(jobs: Iterable[Job], absolute: Absolute) -> dict[int, dict[str, str]]:
    """The addresses of the shells of all running replicas, for each running job that asked for web access.

    One query.
    """
    wanted = [job.pk for job in jobs if job.state == JobState.RUNNING and job.spec.get("enableWebAccess")]
    if not wanted:
        return {}
    uris: dict[int, dict[str, str]] = {}
    # Made once: there may be a thousand runs. The id of a run is letters, digits and "-".
    address = absolute(reverse("shell", args=[0, "RUN"]))
    for job_id, replica, run in _running(jobs=wanted):
        uris.setdefault(job_id, {})[replica] = address.replace(
            "/jobs/0/shell/RUN", f"/jobs/{job_id}/shell/{run}"
        )
    return uris


def masked(document: Document, mask: str) -> Document:
    """Only the fields in the read mask, such as `name,jobSpec.scheduling`, in camelCase or snake_case. Of a list each
    element keeps what is named: `trials.state`."""
    if not mask or mask == "*":
        return document
    kept: Document = {}
    for path in mask.split(","):
        _keep(document, [_camel(part) for part in path.strip().split(".")], kept)
    return kept


def delete_operation(name: str, now: datetime) -> Document:
    """The operation of a deletion, which has always ended already."""
    kind = "type.googleapis.com/google.cloud.aiplatform.v1.DeleteOperationMetadata"
    times = {"createTime": format_time(now), "updateTime": format_time(now)}
    return {
        "name": name,
        "metadata": {"@type": kind, "genericMetadata": times},
        "done": True,
        "response": {"@type": "type.googleapis.com/google.protobuf.Empty"},
    }


def _keep(source: Document, path: list[str], target: Document) -> None:
    head, rest = path[0], path[1:]
    if head not in source:
        return
    found = source[head]
    if rest and isinstance(found, dict):
        _keep(found, rest, target.setdefault(head, {}))
    elif rest and isinstance(found, list) and all(isinstance(each, dict) for each in found):
        for each, kept in zip(found, target.setdefault(head, [{} for _ in found]), strict=True):
            _keep(each, rest, kept)
    else:
        target[head] = found


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)
