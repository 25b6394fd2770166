"""Vertex AI's CustomJob resource: create, get, list, cancel, delete."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console.api import resources
from console.api.errors import BadRequest
from console.api.jobs import filters
from console.api.views import GoogleView, absolute_url, person
from console.auth import access
from jobs import services
from jobs.models import Job
from jobs.projects import log_storage
from jobs.rules.spec.advice import WARNING, WITHOUT
from jobs.scheduling import output_directories

PAGE_SIZE, MAX_PAGE_SIZE = 100, 1000
# A page is built in memory, and one spec may have megabytes.
MAX_PAGE_BYTES = 8 * 1024 * 1024
MAX_WARNING = 600
REQUEST_ID = re.compile(r"[\x21-\x7e]{1,200}")


class JobsView(GoogleView):
    """P/customJobs: POST creates, GET lists."""

    def post(self, request: Request, project: str, location: str) -> Response:
        tenant = access.project_or_404(request.user, "submit", project)
        document = request.data
        if not isinstance(document, dict):
            raise BadRequest("", "The body must be a CustomJob as a JSON object.")
        with transaction.atomic():
            job = services.submit(
                project=tenant,
                user=person(request),
                document=document,
                location=location,
                request_id=_request_id(request),
                now=timezone.now(),
                may_prioritize=access.can(request.user, "prioritize", tenant),
            )
        return Response(resources.custom_job(job, {}), headers=_warnings(job))

    def get(self, request: Request, project: str, location: str) -> Response:
        tenant = access.project_or_404(request.user, "see", project)
        text = request.query_params.get("filter", "")
        size = _page_size(request)
        rows = _in_location(Job.objects.filter(project=tenant), location).filter(filters.parse(text))
        before = _page_token(request, text)
        if before is not None:
            rows = rows.filter(pk__lt=before)
        jobs, more = _page(rows.select_related("project").order_by("-pk"), size)
        documents = _documents(request, jobs)
        return Response(
            {"customJobs": documents, **({"nextPageToken": _token(jobs[-1].pk, text)} if more else {})}
        )


class JobView(GoogleView):
    """P/customJobs/{id}: GET, DELETE."""

    def get(self, request: Request, project: str, location: str, job_id: str) -> Response:
        job = _job(request, "see", project, job_id)
        return Response(_documents(request, [job])[0])

    def delete(self, request: Request, project: str, location: str, job_id: str) -> Response:
        job = _job(request, "delete", project, job_id)
        now = timezone.now()
        operation = f"projects/{project}/locations/{location}/operations/{job.pk}"
        with transaction.atomic():
            services.delete(job, person(request).get_username(), now)
        return Response(resources.delete_operation(operation, now))


class CancelView(GoogleView):
    """P/customJobs/{id}:cancel. Asynchronous: the answer only says that the request was accepted."""

    # The body is {} or empty, with any content type. It is not read.
    def post(self, request: Request, project: str, location: str, job_id: str) -> Response:
        job = _job(request, "cancel", project, job_id)
        with transaction.atomic():
            services.cancel(job, person(request).get_username(), timezone.now())
        return Response({})


class OperationView(GoogleView):
    """P/operations/{id}. The only operations are deletions, which have ended before they are answered."""

    def get(self, request: Request, project: str, location: str, job_id: str) -> Response:
        tenant = access.project_or_404(request.user, "see", project)
        if Job.objects.filter(pk=int(job_id), project=tenant).exists():
            raise Http404
        name = f"projects/{project}/locations/{location}/operations/{job_id}"
        return Response(resources.delete_operation(name, timezone.now()))


def _warnings(job: Job) -> dict[str, str]:
    """The advice about a job that was accepted, as a header: Vertex's resource has no field for it, and the SDK and
    curl show or ignore headers as they like."""
    texts = [
        one.text for one in output_directories.advice_of(job) if one.kind == WARNING or WITHOUT in one.text
    ]
    if full := log_storage.warning(job.project_id):
        texts.append(full)
    plain = [text.encode("ascii", "replace").decode()[:MAX_WARNING] for text in texts]
    quoted = [re.sub(r'["\\\x00-\x1f\x7f]', "'", text) for text in plain]
    return {"Warning": ", ".join(f'299 trainyard "{text}"' for text in quoted)} if quoted else {}


def _documents(request: Request, jobs: list[Job]) -> list[dict[str, Any]]:
    uris = resources.web_access_uris(jobs, lambda path: absolute_url(request, path))
    mask = request.query_params.get("readMask") or request.query_params.get("read_mask") or ""
    return [resources.masked(resources.custom_job(job, uris.get(job.pk, {})), mask) for job in jobs]


def _job(request: Request, verb: access.Verb, project: str, job_id: str) -> Job:
    """The job. The location in the address is not compared, because the id alone identifies the job."""
    tenant = access.project_or_404(request.user, "see", project)
    rows = Job.objects.select_related("project")
    return access.get_or_404(request.user, verb, rows, pk=int(job_id), project=tenant)


def _in_location(rows: QuerySet[Job], location: str) -> QuerySet[Job]:
    """The jobs that were submitted to this location; `-` means all."""
    return rows if location == "-" else rows.filter(location_name=location)


def _request_id(request: Request) -> str | None:
    given = request.headers.get("Idempotency-Key")
    if given is None:
        return None
    if not REQUEST_ID.fullmatch(given):
        raise BadRequest("Idempotency-Key", "Idempotency-Key must have 1 to 200 printable ASCII characters.")
    return given


def _page(rows: QuerySet[Job], size: int) -> tuple[list[Job], bool]:
    """At most `size` jobs, fewer where their specs are large, but at least one; and whether there are more."""
    jobs: list[Job] = []
    weight = 0
    for job in rows[: size + 1].iterator(chunk_size=20):
        if len(jobs) == size or weight > MAX_PAGE_BYTES:
            return jobs, True
        weight += len(json.dumps(job.spec))
        jobs.append(job)
    return jobs, False


def _page_size(request: Request) -> int:
    given = request.query_params.get("pageSize") or request.query_params.get("page_size") or "0"
    if not re.fullmatch(r"[0-9]{1,9}", given):
        raise BadRequest("page_size", f"pageSize must be a whole number of at least 0, not {given!r}.")
    return min(int(given) or PAGE_SIZE, MAX_PAGE_SIZE)


def _token(last: int, text: str) -> str:
    """A page token: where the next page begins, and for which filter it is valid."""
    return base64.urlsafe_b64encode(f"{last}.{_mark(text)}".encode()).decode().rstrip("=")


def _page_token(request: Request, text: str) -> int | None:
    given = request.query_params.get("pageToken") or request.query_params.get("page_token") or ""
    if not given:
        return None
    try:
        decoded = base64.urlsafe_b64decode(given + "=" * (-len(given) % 4)).decode("ascii")
    except ValueError:
        decoded = ""
    last, _, mark = decoded.partition(".")
    if not re.fullmatch(r"[0-9]{1,19}", last) or mark != _mark(text):
        raise BadRequest(
            "page_token",
            "The page token does not belong to this filter.",
        )
    return int(last)


def _mark(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
